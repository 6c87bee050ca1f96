// SPDX-License-Identifier: MIT OR Apache-2.0
// bpftime's array and hash in device memory, written as a whole by all threads at once: whoever writes last wins.
#define BPF_NO_GLOBAL_DATA
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

static __u64 (*bpf_get_block_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)503;
static __u64 (*bpf_get_thread_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)505;

struct {
	__uint(type, 1503);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} counter SEC(".maps");

struct {
	__uint(type, 1501);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} counter_per_thread SEC(".maps");

static __u64 place(void)
{
	__u64 x, y, z, bx, by, bz;

	bpf_get_thread_idx(&x, &y, &z);
	bpf_get_block_idx(&bx, &by, &bz);
	return x + y + z + bx + by + bz;
}

SEC("kprobe/_Z9vectorAddPKfS0_Pf")
int cuda__probe(void)
{
	if (place() == 0) {
		char message[] = "gpu_update_kprobe\n";

		bpf_trace_printk(message, sizeof(message));
	}
	return 0;
}

SEC("kretprobe/_Z9vectorAddPKfS0_Pf")
int cuda__retprobe(void)
{
	__u32 key = 0, pid = bpf_get_current_pid_tgid() >> 32;
	__u64 next = 1, *value = bpf_map_lookup_elem(&counter, &key);

	if (value)
		next = *value + 1;
	bpf_map_update_elem(&counter, &key, &next, BPF_ANY);
	if (place() == 0) {
		char message[] = "gpu_update\n";

		bpf_trace_printk(message, sizeof(message));
		bpf_map_update_elem(&counter_per_thread, &pid, &next, BPF_ANY);
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

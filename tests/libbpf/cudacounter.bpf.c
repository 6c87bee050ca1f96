// SPDX-License-Identifier: MIT OR Apache-2.0
// Calls and time of a kernel per process, as bpftime's counter keeps them: three hashes, and messages whose formats are on the stack.
#define BPF_NO_GLOBAL_DATA
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

static __u64 (*bpf_get_globaltimer)(void) = (void *)502;
static __u64 (*bpf_get_block_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)503;

#define HASH(name)                                                                               \
	struct {                                                                                 \
		__uint(type, BPF_MAP_TYPE_HASH);                                                 \
		__uint(max_entries, 1024);                                                       \
		__type(key, __u32);                                                              \
		__type(value, __u64);                                                            \
	} name SEC(".maps")

HASH(start_ts);
HASH(total_time_ns);
HASH(call_count);

SEC("kprobe/_Z9vectorAddPKfS0_Pf")
int cuda__probe(void)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	__u64 x, y, z, now = bpf_get_globaltimer(), one = 1, *calls;

	bpf_get_block_idx(&x, &y, &z);
	bpf_map_update_elem(&start_ts, &x, &now, BPF_ANY);
	calls = bpf_map_lookup_elem(&call_count, &pid);
	if (calls)
		__atomic_add_fetch(calls, 1, __ATOMIC_SEQ_CST);
	else
		bpf_map_update_elem(&call_count, &pid, &one, BPF_NOEXIST);
	bpf_printk("Entered block %lu at %lu\n", x, now);
	return 0;
}

SEC("kretprobe/_Z9vectorAddPKfS0_Pf")
int cuda__retprobe(void)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	__u64 x, y, z, took, *start, *total;

	bpf_get_block_idx(&x, &y, &z);
	start = bpf_map_lookup_elem(&start_ts, &x);
	if (!start) {
		bpf_printk("Exited block %lu, which another thread has left\n", x);
		return 0;
	}
	took = bpf_get_globaltimer() - *start;
	bpf_map_delete_elem(&start_ts, &x);
	total = bpf_map_lookup_elem(&total_time_ns, &pid);
	if (total) {
		*total += took;
		// What is there already, written over itself.
		bpf_map_update_elem(&total_time_ns, &pid, total, BPF_EXIST);
	} else {
		bpf_map_update_elem(&total_time_ns, &pid, &took, BPF_NOEXIST);
	}
	bpf_printk("Exited block %lu after %llu ns, entered at %luns\n", x, took, *start);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

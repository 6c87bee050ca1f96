// SPDX-License-Identifier: MIT OR Apache-2.0
// Counts per thread and for all in bpftime's two maps in the host's memory, which threads write as a whole: of those that write
// one value at once, the last wins.
#define BPF_NO_GLOBAL_DATA
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

static __u64 (*bpf_get_globaltimer)(void) = (void *)502;
static __u64 (*bpf_get_thread_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)505;

struct {
	__uint(type, 1512);
	__uint(max_entries, 10);
	__type(key, __u32);
	__type(value, __u64);
} perthread_counter SEC(".maps");

struct {
	__uint(type, 1513);
	__uint(max_entries, 10);
	__type(key, __u32);
	__type(value, __u64);
} shared_counter SEC(".maps");

struct {
	__uint(type, 1512);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} thread_timestamp SEC(".maps");

SEC("kprobe/_Z9vectorAddPKfS0_Pf")
int cuda__enter(void)
{
	__u64 x, y, z, now = bpf_get_globaltimer(), next = 1, *shared;
	__u32 key = 0;

	bpf_get_thread_idx(&x, &y, &z);
	bpf_map_update_elem(&thread_timestamp, &key, &now, BPF_ANY);
	key = x % 10;
	shared = bpf_map_lookup_elem(&shared_counter, &key);
	if (shared)
		next = *shared + 1;
	bpf_map_update_elem(&shared_counter, &key, &next, BPF_ANY);
	bpf_printk("Thread (%lu,0,0) entered kernel, ts=%lu\n", x, now);
	return 0;
}

SEC("kretprobe/_Z9vectorAddPKfS0_Pf")
int cuda__leave(void)
{
	__u64 x, y, z, took = 0, *start, *count, next = 1;
	__u32 key = 0;

	bpf_get_thread_idx(&x, &y, &z);
	start = bpf_map_lookup_elem(&thread_timestamp, &key);
	if (start && *start > 0)
		took = bpf_get_globaltimer() - *start;
	count = bpf_map_lookup_elem(&perthread_counter, &key);
	if (count)
		next = *count + 1;
	bpf_map_update_elem(&perthread_counter, &key, &next, BPF_ANY);
	key = 1;
	bpf_map_update_elem(&perthread_counter, &key, &took, BPF_ANY);
	key = 2;
	bpf_map_update_elem(&perthread_counter, &key, &x, BPF_ANY);
	bpf_printk("Thread (%lu,0,0) exited kernel, duration=%lu ns\n", x, took);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

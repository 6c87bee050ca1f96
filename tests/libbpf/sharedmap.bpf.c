// SPDX-License-Identifier: MIT OR Apache-2.0
// bpftime's array and hash in device memory, 1503 and 1501, by their numbers.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

static __u64 (*bpf_get_block_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)503;

struct {
	__uint(type, 1503);
	__uint(max_entries, 10);
	__type(key, __u32);
	__type(value, __u64);
} counter SEC(".maps");

struct {
	__uint(type, 1501);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} blocks SEC(".maps");

SEC("kprobe/_Z9vectorAddPKfS0_Pfi")
int cuda__enter(void)
{
	__u64 x, y, z, one = 1, *value;
	__u32 key = 0;

	bpf_get_block_idx(&x, &y, &z);
	value = bpf_map_lookup_elem(&counter, &key);
	if (value)
		__sync_fetch_and_add(value, 1);
	key = 1 + x % 9;
	value = bpf_map_lookup_elem(&counter, &key);
	if (value)
		__sync_fetch_and_add(value, 1);
	key = x;
	bpf_map_update_elem(&blocks, &key, &one, BPF_NOEXIST);
	value = bpf_map_lookup_elem(&blocks, &key);
	if (value)
		__sync_fetch_and_add(value, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

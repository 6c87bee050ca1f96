// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads that begin, counted in a map of Linux's: those of bpftime's types the tool makes itself, when it wants them.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} threads SEC(".maps");

SEC("kprobe/_Z9vectorAddPKfS0_Pfi")
int cuda__enter(void)
{
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&threads, &key);

	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

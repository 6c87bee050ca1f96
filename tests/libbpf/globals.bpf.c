// SPDX-License-Identifier: MIT OR Apache-2.0
// Global variables: a constant that the tool sets before loading, one that it changes while running, a count that it reads.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

const volatile __u64 step = 1;
__u64 weight = 10;
__u64 count;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} limits SEC(".maps");

SEC("kprobe/_Z9vectorAddPKfS0_Pfi")
int cuda__enter(void)
{
	__u32 key = 2;
	__u64 *limit = bpf_map_lookup_elem(&limits, &key);

	if (limit && *limit == 77)
		__sync_fetch_and_add(&count, step * weight);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

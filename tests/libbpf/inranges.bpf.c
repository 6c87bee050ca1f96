// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads of all launches of kernels with short names, and of those in an NVTX range.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} threads SEC(".maps");

static int count(__u32 key)
{
	__u64 *value = bpf_map_lookup_elem(&threads, &key);

	if (value)
		__sync_fetch_and_add(value, 1);
	return 0;
}

SEC("gpu/entry/????")
int each(void *ctx)
{
	return count(0);
}

SEC("gpu/entry/????|nvtx=step/forward+captured")
int forward(void *ctx)
{
	return count(1);
}

char LICENSE[] SEC("license") = "GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads and blocks that begin and end, of kernels named `probed…` alone: others beside them run as they are.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline int count(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&counts, &what);

	if (n)
		__sync_fetch_and_add(n, 1);
	return 0;
}

SEC("gpu/entry/probed*")
int begun(struct wbpf_kernel_ctx *ctx)
{
	return count(0);
}

SEC("gpu/entry.block/probed*")
int block_begun(struct wbpf_kernel_ctx *ctx)
{
	return count(1);
}

SEC("gpu/exit/probed*")
int ended(struct wbpf_kernel_ctx *ctx)
{
	return count(2);
}

SEC("gpu/exit.block/probed*")
int block_ended(struct wbpf_kernel_ctx *ctx)
{
	return count(3);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Loads and stores of global memory of kernels of which there is only machine code: key = kernel_id * 8 + 0 for loads, 1 for stores, 2 and 3 for their bytes,
// 4 for the warps that load, 5 for addresses that are not of the size's alignment.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline void add(__u64 kernel, __u32 what, __u64 by)
{
	__u32 key = (__u32)kernel * 8 + what;
	__u64 *n = bpf_map_lookup_elem(&counts, &key);

	if (n)
		*n += by;
}

SEC("gpu/mem/*|space=global,kind=load+store")
int access(struct wbpf_mem_ctx *ctx)
{
	__u32 what = ctx->kind - WBPF_KIND_LOAD;

	add(ctx->kernel_id, what, 1);
	add(ctx->kernel_id, 2 + what, ctx->bytes);
	if (ctx->address == 0 || ctx->address % ctx->bytes)
		add(ctx->kernel_id, 5, 1);
	return 0;
}

SEC("gpu/mem.warp/*|space=global,kind=load")
int warp(struct wbpf_mem_ctx *ctx)
{
	add(ctx->kernel_id, 4, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Accesses of a kernel of which there is only machine code: key = kernel_id * 8 + 0 for loads from global memory, 1 for stores there, 2 for the bytes
// stored, 3 for the warps that load, 4 and 5 for loads and stores of shared memory.
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

SEC("gpu/mem/sums|kind=load+store")
int access(struct wbpf_mem_ctx *ctx)
{
	__u32 what = ctx->kind - WBPF_KIND_LOAD;

	if (ctx->space == WBPF_SPACE_SHARED)
		what += 4;
	add(ctx->kernel_id, what, 1);
	return 0;
}

SEC("gpu/mem/sums|space=global+generic,kind=store,size=4")
int stored(struct wbpf_mem_ctx *ctx)
{
	add(ctx->kernel_id, 2, ctx->value_bytes);
	return 0;
}

SEC("gpu/mem.warp/sums|space=global+generic,kind=load")
int warp(struct wbpf_mem_ctx *ctx)
{
	add(ctx->kernel_id, 3, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Stores with their values, accesses of local memory, and prefetches: key = kernel_id * 32 + 0 to 4 for stores of 1, 2, 4, 8 and 16 bytes to global memory,
// 5 to 9 for the sums of their values' first words, 10 for that of the second ones, 11 for the bytes of values; 16 and 17 for loads and stores of local memory, 18 and 19
// for their bytes, 20 for the sum of what is stored there, 21 for its bytes; 24 for prefetches, 25 for those of an address that is no element's, 26 for those that say how
// much they fetch.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline void add(__u64 kernel, __u32 what, __u64 by)
{
	__u32 key = (__u32)kernel * 32 + what;
	__u64 *n = bpf_map_lookup_elem(&counts, &key);

	if (n)
		*n += by;
}

SEC("gpu/mem/*|space=global+generic,kind=store")
int stored(struct wbpf_mem_ctx *ctx)
{
	__u32 bytes = ctx->bytes;
	__u32 width = bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : bytes == 8 ? 3 : 4;

	add(ctx->kernel_id, width, 1);
	add(ctx->kernel_id, 5 + width, ctx->value[0]);
	add(ctx->kernel_id, 10, ctx->value[1]);
	add(ctx->kernel_id, 11, ctx->value_bytes);
	return 0;
}

SEC("gpu/mem/*|space=local,kind=load+store")
int own(struct wbpf_mem_ctx *ctx)
{
	__u32 what = ctx->kind - WBPF_KIND_LOAD;

	add(ctx->kernel_id, 16 + what, 1);
	add(ctx->kernel_id, 18 + what, ctx->bytes);
	return 0;
}

SEC("gpu/mem/*|space=local,kind=store")
int kept(struct wbpf_mem_ctx *ctx)
{
	add(ctx->kernel_id, 20, ctx->value[0]);
	add(ctx->kernel_id, 21, ctx->value_bytes);
	return 0;
}

SEC("gpu/mem/*|kind=prefetch")
int fetched(struct wbpf_mem_ctx *ctx)
{
	add(ctx->kernel_id, 24, 1);
	if (!ctx->address || ctx->address % 8)
		add(ctx->kernel_id, 25, 1);
	if (ctx->bytes)
		add(ctx->kernel_id, 26, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

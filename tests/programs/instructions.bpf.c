// SPDX-License-Identifier: MIT OR Apache-2.0
// What tests/apps/instructions.cu executes: key = kernel_id * 64 + what. tests/suite/src/instructions.rs names the keys.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

enum {
	BYTES = 16,   /* + kind, as accesses are at their kind */
	BARRIERS = 32, /* + kind */
	FAR = 41,     /* + kind */
	IDS = 46,
	THREADS,
	LANES,
	CALLS,
	RETURNS,
	TARGETS,
	ADDRESSES,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16 * 64);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline void add(__u64 kernel, __u32 what, __u64 by)
{
	__u32 key = (__u32)kernel * 64 + what;
	__u64 *n = bpf_map_lookup_elem(&counts, &key);

	if (n)
		*n += by;
}

SEC("gpu/mem/*|kind=async_copy+matrix_load+matrix_store")
int moved(struct wbpf_mem_ctx *ctx)
{
	add(ctx->kernel_id, ctx->kind, 1);
	add(ctx->kernel_id, BYTES + ctx->kind, ctx->bytes);
	return 0;
}

/* Copies whose size is in a register are selected by every size. */
SEC("gpu/mem/*|kind=async_copy,size=8")
int copied(struct wbpf_mem_ctx *ctx)
{
	if (ctx->bytes == 8 && ctx->address && ctx->target_space == WBPF_SPACE_SHARED && ctx->target % 16 == 0)
		add(ctx->kernel_id, TARGETS, 1);
	return 0;
}

/* The first row of the block may be at address 0. */
SEC("gpu/mem/*|kind=matrix_load")
int rows(struct wbpf_mem_ctx *ctx)
{
	if (ctx->address || ctx->thread_idx[0] == 0)
		add(ctx->kernel_id, ADDRESSES, 1);
	return 0;
}

SEC("gpu/mem/*|space=cluster")
int far(struct wbpf_mem_ctx *ctx)
{
	add(ctx->kernel_id, FAR + ctx->kind, ctx->bytes);
	return 0;
}

SEC("gpu/barrier/*")
int met(struct wbpf_barrier_ctx *ctx)
{
	add(ctx->kernel_id, BARRIERS + ctx->kind, 1);
	return 0;
}

SEC("gpu/barrier/*|kind=sync")
int which(struct wbpf_barrier_ctx *ctx)
{
	add(ctx->kernel_id, IDS, ctx->barrier_id);
	if (ctx->barrier_id)
		add(ctx->kernel_id, THREADS, ctx->threads);
	return 0;
}

SEC("gpu/barrier.warp/*|kind=sync")
int together(struct wbpf_barrier_ctx *ctx)
{
	add(ctx->kernel_id, LANES, __builtin_popcount(ctx->active_mask));
	return 0;
}

SEC("gpu/func/*")
int called(struct wbpf_site_ctx *ctx)
{
	add(ctx->kernel_id, CALLS, 1);
	return 0;
}

SEC("gpu/funcret/*")
int returned(struct wbpf_site_ctx *ctx)
{
	add(ctx->kernel_id, RETURNS, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

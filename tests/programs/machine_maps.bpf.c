// SPDX-License-Identifier: MIT OR Apache-2.0
// The maps of machine_maps.h, used where threads begin and where they end.
#include "machine_maps.h"

SEC("gpu/entry/*")
int begins(struct wbpf_kernel_ctx *ctx)
{
	count(ctx->kernel_id, ctx->block_idx[0], 0);
	if (ctx->thread_idx[0] == 0)
		push(ctx->kernel_id, ctx->block_idx[0]);
	return 0;
}

SEC("gpu/exit/*")
int ends(struct wbpf_kernel_ctx *ctx)
{
	count(ctx->kernel_id, ctx->block_idx[0], 1);
	if (ctx->thread_idx[0] % 64 == 0)
		record(ctx->kernel_id, ctx->block_idx[0]);
	if (ctx->thread_idx[0] == 0)
		pop(ctx->kernel_id);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

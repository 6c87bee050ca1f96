// SPDX-License-Identifier: MIT OR Apache-2.0
// The maps of machine_maps.h, used at each load, of which some lanes may have left already.
#include "machine_maps.h"

SEC("gpu/mem/*|space=global,kind=load")
int loads(struct wbpf_mem_ctx *ctx)
{
	__u32 word;

	count(ctx->kernel_id, ctx->block_idx[0], 0);
	if (ctx->thread_idx[0] == 0)
		push(ctx->kernel_id, ctx->block_idx[0]);
	if (ctx->thread_idx[0] % 64 == 0)
		record(ctx->kernel_id, ctx->block_idx[0]);
	if (ctx->thread_idx[0] == 0)
		pop(ctx->kernel_id);
	if (bpf_probe_read_kernel(&word, sizeof(word), (void *)ctx->address) == 0)
		note(ctx->kernel_id, 6, sizeof(word));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

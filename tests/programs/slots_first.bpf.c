// SPDX-License-Identifier: MIT OR Apache-2.0
// Comes into slots beside slots.bpf.c: counts, and adds up what its context says.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
#include "slots.h"

SEC("gpu/mem/*persist*|kind=store,size=8")
int first(struct wbpf_mem_ctx *ctx)
{
	add(1, 1);
	add(2, ctx->bytes);
	add(3, ctx->thread_idx[0]);
	add(4, ctx->kind == WBPF_KIND_STORE && ctx->address % 8 == 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

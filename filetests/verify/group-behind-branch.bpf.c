// SPDX-License-Identifier: MIT OR Apache-2.0
// A sum over a group of which only a part arrives.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

__u64 total;

SEC("gpu/entry/*")
int even(struct wbpf_kernel_ctx *ctx)
{
	if (ctx->lane & 1)
		return 0;
	total = bpf_gpu_warp_sum(ctx->thread_idx[0]);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

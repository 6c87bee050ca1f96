// SPDX-License-Identifier: MIT OR Apache-2.0
// The context is not a variable.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

SEC("gpu/entry/*")
int probe(struct wbpf_kernel_ctx *ctx)
{
	ctx->lane = 0;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

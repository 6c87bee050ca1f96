// SPDX-License-Identifier: MIT OR Apache-2.0
// A kernel function that no GPU has, declared weak, and called without asking whether it is there.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

extern int bpf_no_such_function(int x) __ksym __weak;

SEC("gpu/entry/*")
int probe(struct wbpf_kernel_ctx *ctx)
{
	return bpf_no_such_function(ctx->lane);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Counts entries and exits of threads, per kernel: key = kernel_id * 2 + (exit ? 1 : 0). For tests/kernels.
#define NUMBERS 256
#include "counts.h"

SEC("gpu/entry/*")
int at_entry(struct wbpf_kernel_ctx *ctx)
{
	return count((__u32)ctx->kernel_id * 2);
}

SEC("gpu/exit/*")
int at_exit(struct wbpf_kernel_ctx *ctx)
{
	return count((__u32)ctx->kernel_id * 2 + 1);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

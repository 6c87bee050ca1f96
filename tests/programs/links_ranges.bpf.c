// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs that are in launches by NVTX ranges and by streams, beside one that is in all.
#define NUMBERS 7
#include "counts.h"

SEC("gpu/entry/*")
int each(struct wbpf_kernel_ctx *ctx)
{
	return count(0);
}

SEC("gpu/entry/*|nvtx=step/forward+captured")
int forward(struct wbpf_kernel_ctx *ctx)
{
	return count(1);
}

SEC("gpu/exit/*|stream=default")
int by_default(struct wbpf_kernel_ctx *ctx)
{
	return count(2);
}

SEC("gpu/exit/*|stream=cop*+2")
int copies(struct wbpf_kernel_ctx *ctx)
{
	return count(3);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

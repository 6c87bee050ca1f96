// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs in functions of kernels, at their ends and at their accesses, for choices of launches that the command line makes.
#define NUMBERS 6
#include "counts.h"

SEC("gpu/func/*")
int called(struct wbpf_site_ctx *ctx)
{
	return count(0);
}

SEC("gpu/funcret/*")
int returned(struct wbpf_site_ctx *ctx)
{
	return count(1);
}

SEC("gpu/mem/*|kind=store")
int stored(struct wbpf_mem_ctx *ctx)
{
	return count(2);
}

SEC("gpu/exit/*")
int threads(struct wbpf_kernel_ctx *ctx)
{
	return count(3);
}

SEC("gpu/exit.block/*")
int blocks(struct wbpf_kernel_ctx *ctx)
{
	return count(4);
}

SEC("gpu/branch/*")
int branches(struct wbpf_branch_ctx *ctx)
{
	return count(5);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

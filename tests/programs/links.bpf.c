// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs at one kernel that are in different launches, and count under numbers of their own.
#define NUMBERS 7
#include "counts.h"

SEC("gpu/entry/*")
int all(struct wbpf_kernel_ctx *ctx)
{
	return count(0);
}

SEC("gpu/entry/*|every=3")
int third(struct wbpf_kernel_ctx *ctx)
{
	return count(1);
}

/* What counts who leaves does so in each launch. */
SEC("gpu/exit.block/*|every=2,after=1")
int blocks(struct wbpf_kernel_ctx *ctx)
{
	return count(2);
}

SEC("gpu/exit.warp/*|at_most=3")
int warps(struct wbpf_kernel_ctx *ctx)
{
	return count(3);
}

SEC("gpu/mem/*|kind=store,at_most=2")
int stores(struct wbpf_mem_ctx *ctx)
{
	return count(4);
}

SEC("gpu/exit/*|min_blocks=1000000")
int never(struct wbpf_kernel_ctx *ctx)
{
	return count(5);
}

SEC("gpu/mem/*|kind=load,space=global+generic,every=4")
int loads(struct wbpf_mem_ctx *ctx)
{
	return count(6);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

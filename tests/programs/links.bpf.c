// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs at one kernel that are in different launches, and count under numbers of their own.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

/* By program. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 7);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline int count(__u32 key)
{
	__u64 *n = bpf_map_lookup_elem(&counts, &key);

	if (n)
		*n += 1;
	return 0;
}

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

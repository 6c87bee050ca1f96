// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs in functions of kernels, at their ends and at their accesses, for choices of launches that the command line makes.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

/* By program. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 6);
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

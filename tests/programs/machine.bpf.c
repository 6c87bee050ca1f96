// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads that begin and that end, per kernel, for kernels of which there is only machine code: key = kernel_id * 4 + which. Two programs for all
// kernels, and one for one of them that counts its blocks.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 400);
	__type(key, __u32);
	__type(value, __u64);
} blocks SEC(".maps");

static __always_inline void count(struct wbpf_kernel_ctx *ctx, __u32 what)
{
	__u32 key = (__u32)ctx->kernel_id * 4 + what;
	__u64 *n = bpf_map_lookup_elem(&counts, &key);

	if (n)
		*n += 1;
}

SEC("gpu/entry/*")
int begins(struct wbpf_kernel_ctx *ctx)
{
	count(ctx, 0);
	return 0;
}

SEC("gpu/exit/*")
int ends(struct wbpf_kernel_ctx *ctx)
{
	count(ctx, 1);
	return 0;
}

SEC("gpu/entry.block/sums")
int block(struct wbpf_kernel_ctx *ctx)
{
	__u32 key = (__u32)ctx->block_idx[0];
	__u64 *n = bpf_map_lookup_elem(&blocks, &key);

	if (n)
		*n += 1;
	count(ctx, 2);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

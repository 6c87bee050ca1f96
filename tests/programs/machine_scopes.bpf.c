// SPDX-License-Identifier: MIT OR Apache-2.0
// What a launch tells kernels of which there is only machine code: key = kernel_id * 16 + which. Threads, warps and blocks that begin (0, 1, 2) and that
// end (3, 4, 5); the sum of the launches' numbers, by blocks that begin (6) and by blocks that end (7); threads that begin and warps that end in every
// tenth launch (8, 9).
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline void add(struct wbpf_kernel_ctx *ctx, __u32 what, __u64 n)
{
	__u32 key = (__u32)ctx->kernel_id * 16 + what;
	__u64 *value = bpf_map_lookup_elem(&counts, &key);

	if (value)
		*value += n;
}

SEC("gpu/entry/*")
int thread_begins(struct wbpf_kernel_ctx *ctx)
{
	add(ctx, 0, 1);
	return 0;
}

SEC("gpu/entry.warp/*")
int warp_begins(struct wbpf_kernel_ctx *ctx)
{
	add(ctx, 1, 1);
	return 0;
}

SEC("gpu/entry.block/*")
int block_begins(struct wbpf_kernel_ctx *ctx)
{
	add(ctx, 2, 1);
	add(ctx, 6, ctx->launch_id);
	return 0;
}

SEC("gpu/exit/*")
int thread_ends(struct wbpf_kernel_ctx *ctx)
{
	add(ctx, 3, 1);
	return 0;
}

SEC("gpu/exit.warp/*")
int warp_ends(struct wbpf_kernel_ctx *ctx)
{
	add(ctx, 4, 1);
	return 0;
}

SEC("gpu/exit.block/*")
int block_ends(struct wbpf_kernel_ctx *ctx)
{
	add(ctx, 5, 1);
	add(ctx, 7, ctx->launch_id);
	return 0;
}

SEC("gpu/entry/*|every=10")
int tenth_begins(struct wbpf_kernel_ctx *ctx)
{
	add(ctx, 8, 1);
	return 0;
}

SEC("gpu/exit.warp/*|every=10")
int tenth_ends(struct wbpf_kernel_ctx *ctx)
{
	add(ctx, 9, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

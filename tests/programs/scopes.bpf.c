// SPDX-License-Identifier: MIT OR Apache-2.0
// Counts every kind of site in every scope, per kernel: key = kernel_id * 8 + (exit ? 4 : 0) + scope.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

/* Lanes seen by warp scope: the groups may differ from run to run, their lanes may not. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} lanes SEC(".maps");

static __always_inline void count(struct wbpf_kernel_ctx *ctx, __u32 what)
{
	__u32 key = (__u32)ctx->kernel_id * 8 + what;
	__u64 *n = bpf_map_lookup_elem(&counts, &key);

	if (n)
		*n += 1;
}

SEC("gpu/entry/*")
int entry_thread(struct wbpf_kernel_ctx *ctx)
{
	count(ctx, 0);
	return 0;
}

SEC("gpu/entry.warp/*")
int entry_warp(struct wbpf_kernel_ctx *ctx)
{
	__u32 key = (__u32)ctx->kernel_id * 8 + 1;
	__u64 *n = bpf_map_lookup_elem(&lanes, &key);
	__u32 m = ctx->active_mask;

	count(ctx, 1);
	m = m - ((m >> 1) & 0x55555555);
	m = (m & 0x33333333) + ((m >> 2) & 0x33333333);
	m = (((m + (m >> 4)) & 0x0f0f0f0f) * 0x01010101) >> 24;
	if (n)
		*n += m;
	return 0;
}

SEC("gpu/entry.block/*")
int entry_block(struct wbpf_kernel_ctx *ctx)
{
	count(ctx, 2);
	return 0;
}

SEC("gpu/exit/*")
int exit_thread(struct wbpf_kernel_ctx *ctx)
{
	count(ctx, 4);
	return 0;
}

SEC("gpu/exit.warp/*")
int exit_warp(struct wbpf_kernel_ctx *ctx)
{
	count(ctx, 5);
	return 0;
}

SEC("gpu/exit.block/*")
int exit_block(struct wbpf_kernel_ctx *ctx)
{
	count(ctx, 6);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

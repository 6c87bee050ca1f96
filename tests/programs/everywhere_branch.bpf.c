// SPDX-License-Identifier: MIT OR Apache-2.0
// Counts threads at conditional branches and those that take them, one by one and as lanes of masks: the sums must agree.
// key = kernel_id * 4 + what. For tests/kernels.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} lanes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline void add(__u32 key, __u32 m)
{
	__u64 *n = bpf_map_lookup_elem(&lanes, &key);

	m = m - ((m >> 1) & 0x55555555);
	m = (m & 0x33333333) + ((m >> 2) & 0x33333333);
	m = (((m + (m >> 4)) & 0x0f0f0f0f) * 0x01010101) >> 24;
	if (n)
		*n += m;
}

SEC("gpu/branch/*")
int by_thread(struct wbpf_branch_ctx *ctx)
{
	__u32 key = (__u32)ctx->kernel_id * 4 + (ctx->taken ? 1 : 0);
	__u64 *n = bpf_map_lookup_elem(&counts, &key);

	if (n)
		*n += 1;
	return 0;
}

SEC("gpu/branch.warp/*")
int by_mask(struct wbpf_branch_ctx *ctx)
{
	add((__u32)ctx->kernel_id * 4, ctx->active_mask & ~ctx->taken_mask);
	add((__u32)ctx->kernel_id * 4 + 1, ctx->taken_mask);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

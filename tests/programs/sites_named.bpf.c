// SPDX-License-Identifier: MIT OR Apache-2.0
// Parameters by their names in the source. Sums over threads, by kernel: key = kernel_id * 8 + what; 0: threads, 1: `n`,
// 2: `bias`, 3: arguments that were not asked for.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} sums SEC(".maps");

static __always_inline void add(struct wbpf_kernel_ctx *ctx, __u32 what, __u64 number)
{
	__u32 key = (ctx->kernel_id & 7) * 8 + what;
	__u64 *n = bpf_map_lookup_elem(&sums, &key);

	if (n)
		*n += number;
}

SEC("gpu/entry/*|args=n+bias")
int at_entry(struct wbpf_kernel_ctx *ctx)
{
	add(ctx, 0, 1);
	add(ctx, 1, ctx->args[0]);
	add(ctx, 2, ctx->args[1]);
	add(ctx, 3, ctx->args[2] | ctx->args[15]);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Counts calls of functions and returns from them, and one line, per kernel: key = kernel_id * 4 + what. For tests/kernels.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline int count(struct wbpf_site_ctx *ctx, __u32 what)
{
	__u32 key = (__u32)ctx->kernel_id * 4 + what;
	__u64 *n = bpf_map_lookup_elem(&counts, &key);

	if (n)
		*n += 1;
	return 0;
}

/* `if (i < n)`, one piece of code. */
SEC("gpu/line/countCopy|at=counted.cu:9")
int at_line(struct wbpf_site_ctx *ctx)
{
	return count(ctx, 0);
}

SEC("gpu/func/*")
int at_call(struct wbpf_site_ctx *ctx)
{
	return count(ctx, 1);
}

SEC("gpu/funcret/*")
int at_return(struct wbpf_site_ctx *ctx)
{
	return count(ctx, 2);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

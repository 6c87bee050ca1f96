// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs that are kernels themselves, ours and bpftime's.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

/* 0: threads of ours, 1: of bpftime's, 2: sum of their linear numbers */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline void add(__u32 what, __u64 number)
{
	__u64 *n = bpf_map_lookup_elem(&counts, &what);

	if (n)
		*n += number;
}

SEC("gpu/run")
int ours(struct wbpf_kernel_ctx *ctx)
{
	add(0, 1);
	add(2, ctx->block_idx[0] * ctx->block_dim[0] + ctx->thread_idx[0]);
	return 0;
}

SEC("kprobe/__directly_run")
int cuda__run(void *ctx)
{
	add(1, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

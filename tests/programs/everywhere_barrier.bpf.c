// SPDX-License-Identifier: MIT OR Apache-2.0
// Counts every barrier, per kernel and kind: key = kernel_id * 16 + kind. For tests/kernels.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

SEC("gpu/barrier/*")
int at_barrier(struct wbpf_barrier_ctx *ctx)
{
	__u32 key = (__u32)ctx->kernel_id * 16 + ctx->kind;
	__u64 *n = bpf_map_lookup_elem(&counts, &key);

	if (n)
		*n += 1;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

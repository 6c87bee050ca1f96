// SPDX-License-Identifier: MIT OR Apache-2.0
// Counts every access to memory, per kernel, kind and space: key = kernel_id * 256 + kind * 8 + space. For tests/kernels.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

SEC("gpu/mem/*")
int at_access(struct wbpf_mem_ctx *ctx)
{
	__u32 key = (__u32)ctx->kernel_id * 256 + ctx->kind * 8 + ctx->space;
	__u64 *n = bpf_map_lookup_elem(&counts, &key);

	if (n)
		*n += 1;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// How often did each thread, and each block, run the kernel?
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERGPUTD_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u64);
} blocks SEC(".maps");

SEC("gpu/entry/*")
int threadhist(struct wbpf_kernel_ctx *ctx)
{
	__u32 zero = 0;
	__u32 block = ctx->block_idx[0] + ctx->block_idx[1] * ctx->grid_dim[0];
	__u64 *count;

	count = bpf_map_lookup_elem(&threads, &zero);
	if (count)
		*count += 1;
	count = bpf_map_lookup_elem(&blocks, &block);
	if (count)
		*count += 1;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

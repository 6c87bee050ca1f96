// SPDX-License-Identifier: MIT OR Apache-2.0
// For each block the time from its first thread's begin to its last thread's end, without a barrier: the last thread to begin
// keeps the earliest begin, and the last one to end finds it and sends one record for the block.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

#define BLOCKS 4096

struct span {
	__u64 launch;
	__u64 block;
	__u64 begin_ns;
	__u64 end_ns;
};

/* Earliest begin, by block: launches of one stream take turns. */
struct {
	__uint(type, BPF_MAP_TYPE_GPU_ARRAY);
	__uint(max_entries, BLOCKS);
	__type(key, __u32);
	__type(value, __u64);
} begins SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
	__type(value, struct span);
} spans SEC(".maps");

SEC("gpu/entry/*")
int begin(struct wbpf_kernel_ctx *ctx)
{
	__u64 earliest;

	if (bpf_gpu_block_min(bpf_ktime_get_ns(), &earliest)) {
		__u32 key = bpf_gpu_block_id() % BLOCKS;
		__u64 *begin = bpf_map_lookup_elem(&begins, &key);

		if (begin)
			*begin = earliest;
	}
	return 0;
}

SEC("gpu/exit/*")
int end(struct wbpf_kernel_ctx *ctx)
{
	struct span span = {};
	__u64 latest;

	if (bpf_gpu_block_max(bpf_ktime_get_ns(), &latest)) {
		__u32 key = bpf_gpu_block_id() % BLOCKS;
		__u64 *begin = bpf_map_lookup_elem(&begins, &key);

		span.launch = ctx->launch_id;
		span.block = bpf_gpu_block_id();
		span.begin_ns = begin ? *begin : 0;
		span.end_ns = latest;
		bpf_ringbuf_output(&spans, &span, sizeof(span), 0);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

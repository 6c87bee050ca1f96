// SPDX-License-Identifier: MIT OR Apache-2.0
// For each block the time from its first thread's begin to its last thread's end, without a barrier: the last thread to begin
// keeps the earliest begin, and the last one to end finds it and sends one record for the block.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

/* Blocks of launches that run at once differ in this. In a graph, `launch` is that of the capture, and `node` tells nodes apart. */
struct block {
	__u64 kernel;
	__u64 launch;
	__u64 node;
	__u64 number;
};

struct span {
	struct block block;
	__u64 begin_ns;
	__u64 end_ns;
};

/* Earliest begin of each block that runs: room for more than any GPU runs at once. The LRU has it, because its keys can come and go for
 * ever. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct block);
	__type(value, __u64);
} begins SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
	__type(value, struct span);
} spans SEC(".maps");

/* Number of blocks whose begin the LRU had to drop: they send nothing. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} dropped SEC(".maps");

static void identify(struct block *block, struct wbpf_kernel_ctx *ctx)
{
	block->kernel = ctx->kernel_id;
	block->launch = ctx->launch_id;
	block->node = bpf_gpu_graph_node();
	block->number = bpf_gpu_block_id();
}

SEC("gpu/entry/*")
int begin(struct wbpf_kernel_ctx *ctx)
{
	struct block block;
	__u64 earliest;

	if (bpf_gpu_block_min(bpf_ktime_get_ns(), &earliest)) {
		identify(&block, ctx);
		bpf_map_update_elem(&begins, &block, &earliest, BPF_ANY);
	}
	return 0;
}

SEC("gpu/exit/*")
int end(struct wbpf_kernel_ctx *ctx)
{
	struct span span;
	__u64 *earliest, latest;

	if (!bpf_gpu_block_max(bpf_ktime_get_ns(), &latest))
		return 0;
	identify(&span.block, ctx);
	earliest = bpf_map_lookup_elem(&begins, &span.block);
	if (earliest)
		span.begin_ns = *earliest;
	/* What is still there to be deleted was this block's when it was read. */
	if (!earliest || bpf_map_delete_elem(&begins, &span.block)) {
		__u32 key = 0;
		__u64 *count = bpf_map_lookup_elem(&dropped, &key);

		if (count)
			__sync_fetch_and_add(count, 1);
		return 0;
	}
	span.end_ns = latest;
	bpf_ringbuf_output(&spans, &span, sizeof(span), 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

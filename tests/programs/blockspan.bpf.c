// SPDX-License-Identifier: MIT OR Apache-2.0
// For each block the time from its first thread's begin to its last thread's end, without a barrier: the last thread to begin
// keeps the earliest begin, and the last one to end finds it and sends one record for the block.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

/* In a graph, `launch` is that of the capture, and `node` tells nodes apart. */
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

/* What blocks that run at once differ in, and what a thread that leaves in a device function can read, too. */
struct running {
	__u64 grid;
	__u64 number;
};

/* Earliest begin of each block that runs: room for more than any GPU runs at once. The LRU has it, because its keys can come and go for
 * ever. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct running);
	__type(value, struct span);
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

static void identify(struct running *running)
{
	running->grid = bpf_gpu_grid_id();
	running->number = bpf_gpu_block_id();
}

SEC("gpu/entry/*")
int begin(struct wbpf_kernel_ctx *ctx)
{
	struct running running;
	struct span span = {};

	if (!bpf_gpu_block_min(bpf_ktime_get_ns(), &span.begin_ns))
		return 0;
	identify(&running);
	span.block.kernel = ctx->kernel_id;
	span.block.launch = ctx->launch_id;
	span.block.node = bpf_gpu_graph_node();
	span.block.number = running.number;
	bpf_map_update_elem(&begins, &running, &span, BPF_ANY);
	return 0;
}

SEC("gpu/exit/*")
int end(struct wbpf_kernel_ctx *ctx)
{
	struct running running;
	struct span span = {}, *begun;
	__u64 latest;

	if (!bpf_gpu_block_max(bpf_ktime_get_ns(), &latest))
		return 0;
	identify(&running);
	begun = bpf_map_lookup_elem(&begins, &running);
	if (begun)
		span = *begun;
	/* What is still there to be deleted was this block's when it was read. */
	if (!begun || bpf_map_delete_elem(&begins, &running)) {
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

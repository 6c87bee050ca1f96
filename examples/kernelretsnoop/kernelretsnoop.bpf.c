// SPDX-License-Identifier: MIT OR Apache-2.0
// When did each thread leave the kernel, and on which multiprocessor?
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct event {
	__u64 time_ns;
	__u32 block;
	__u32 thread;
	__u32 sm;
	__u32 lane;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
	__type(value, struct event); /* lets the tools print records by their fields */
} events SEC(".maps");

SEC("gpu/exit/*")
int kernelretsnoop(struct wbpf_kernel_ctx *ctx)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e)
		return 0;
	e->time_ns = bpf_ktime_get_ns();
	e->block = ctx->block_idx[0] + ctx->block_idx[1] * ctx->grid_dim[0];
	e->thread = ctx->thread_idx[0] + ctx->thread_idx[1] * ctx->block_dim[0];
	e->sm = ctx->sm;
	e->lane = ctx->lane;
	bpf_ringbuf_submit(e, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Every thread sends one event of 32 bytes, header included; of 32 without it where `WHOLE` is defined.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct event {
	__u64 time;
	__u32 block;
	__u32 thread;
	__u64 sm;
#ifdef WHOLE
	__u64 step;
#endif
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1u << 31);
	__type(value, struct event);
} events SEC(".maps");

SEC("gpu/entry/vadd")
int send(struct wbpf_kernel_ctx *ctx)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e)
		return 0;
	e->time = bpf_gpu_globaltimer();
	e->block = ctx->block_idx[0];
	e->thread = ctx->thread_idx[0];
	e->sm = ctx->sm;
#ifdef WHOLE
	e->step = 1;
#endif
	bpf_ringbuf_submit(e, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

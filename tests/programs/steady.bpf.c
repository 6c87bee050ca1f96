// SPDX-License-Identifier: MIT OR Apache-2.0
// Runs at each load of a kernel that does not end by itself: the first thread of each block sends an event, numbered in the block.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct event {
	__u64 number;
	__u64 block;
};

/* [0]: end the kernel */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERGPUTD_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} sent SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 26);
	__type(value, struct event);
} events SEC(".maps");

SEC("gpu/mem/*spin*|kind=load,size=4")
int send(struct wbpf_mem_ctx *ctx)
{
	__u32 zero = 0;
	__u32 *flag = bpf_map_lookup_elem(&control, &zero);
	struct event event = {.block = ctx->block_idx[0]};
	__u64 *number;

	if (flag && *(volatile __u32 *)flag)
		bpf_gpu_exit();
	number = bpf_map_lookup_elem(&sent, &zero);
	if (!number || ctx->thread_idx[0])
		return 0;
	*number += 1;
	event.number = *number;
	bpf_ringbuf_output(&events, &event, sizeof(event), 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

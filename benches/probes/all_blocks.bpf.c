// SPDX-License-Identifier: MIT OR Apache-2.0
// About when each of the first 262,144 blocks of the last launch began and ended. Nobody waits for anything: a block's first thread says when it
// began, each warp that leaves when it did, and a block of a later launch writes over what was there. A warp that looked at the clock
// first may write last, so an end may be some nanoseconds early.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

#define BLOCKS (1 << 18)

struct span {
	__u64 begin;
	__u64 end;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BLOCKS);
	__type(key, __u32);
	__type(value, struct span);
} blocks SEC(".maps");

SEC("gpu/entry/*")
int begins(struct wbpf_kernel_ctx *ctx)
{
	__u32 key = bpf_gpu_block_id();
	struct span *span;

	if (ctx->warp || ctx->lane)
		return 0;
	span = bpf_map_lookup_elem(&blocks, &key);
	if (span)
		*(volatile __u64 *)&span->begin = bpf_gpu_globaltimer();
	return 0;
}

SEC("gpu/exit/*")
int ends(struct wbpf_kernel_ctx *ctx)
{
	__u32 key = bpf_gpu_block_id();
	struct span *span;

	if (!bpf_gpu_warp_leader())
		return 0;
	span = bpf_map_lookup_elem(&blocks, &key);
	if (span)
		*(volatile __u64 *)&span->end = bpf_gpu_globaltimer();
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

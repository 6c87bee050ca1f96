// SPDX-License-Identifier: MIT OR Apache-2.0
// Comes into slots after slots_first.bpf.c: two programs at one place, with a constant, a loop and a hash.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
#include "slots.h"

const volatile __u64 steps[4] = {1, 2, 3, 4};

SEC("gpu/mem/*persist*|kind=store,size=8")
int second(struct wbpf_mem_ctx *ctx)
{
	__u64 sum = 0;

	for (int i = 0; i < 4; i++)
		sum += steps[i];
	return add(5, sum);
}

SEC("gpu/mem/*persist*|kind=store,size=8")
int third(struct wbpf_mem_ctx *ctx)
{
	__u32 block = ctx->block_idx[0];
	__u64 zero = 0;
	__u64 *count;

	bpf_map_update_elem(&blocks, &block, &zero, BPF_NOEXIST);
	count = bpf_map_lookup_elem(&blocks, &block);
	if (count)
		__sync_fetch_and_add(count, 1);
	return add(6, 1);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

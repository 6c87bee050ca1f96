// SPDX-License-Identifier: MIT OR Apache-2.0
// How often the lanes that load together touch so many sectors of global memory, and ask so many words of one bank.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

/* 32 bytes of each lane touch at most 64 sectors. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65);
	__type(key, __u32);
	__type(value, __u64);
} sectors SEC(".maps"), conflicts SEC(".maps");

static __always_inline int count(void *map, __u32 number)
{
	/* All lanes were asked; one of them tells. */
	__u64 *times = bpf_gpu_warp_leader() ? bpf_map_lookup_elem(map, &number) : 0;

	if (times)
		__sync_fetch_and_add(times, 1);
	return 0;
}

SEC("gpu/mem/*|space=global,kind=load")
int global(struct wbpf_mem_ctx *ctx)
{
	return count(&sectors, bpf_gpu_warp_sectors(ctx->address, ctx->bytes));
}

SEC("gpu/mem/*|space=shared")
int shared(struct wbpf_mem_ctx *ctx)
{
	return count(&conflicts, bpf_gpu_warp_conflicts(ctx->address, ctx->bytes));
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// As memcount.bpf.c, at warp scope: one lane adds for all that are at the access together.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct access_counts {
	__u64 accesses;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct access_counts);
} memory SEC(".maps");

static __always_inline int count(struct wbpf_mem_ctx *ctx)
{
	__u32 zero = 0;
	struct access_counts *c = bpf_map_lookup_elem(&memory, &zero);
	__u64 n = __builtin_popcount(ctx->active_mask);

	if (c) {
		c->accesses += n;
		c->bytes += n * ctx->bytes;
	}
	return 0;
}

SEC("gpu/mem.warp/vadd|space=global+generic")
int in_vadd(struct wbpf_mem_ctx *ctx)
{
	return count(ctx);
}

SEC("gpu/mem.warp/stencil|space=global+generic")
int in_stencil(struct wbpf_mem_ctx *ctx)
{
	return count(ctx);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Every access to global memory adds one and its bytes.
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

	if (c) {
		c->accesses += 1;
		c->bytes += ctx->bytes;
	}
	return 0;
}

SEC("gpu/mem/vadd|space=global+generic")
int in_vadd(struct wbpf_mem_ctx *ctx)
{
	return count(ctx);
}

SEC("gpu/mem/stencil|space=global+generic")
int in_stencil(struct wbpf_mem_ctx *ctx)
{
	return count(ctx);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Counts accesses to global memory and their bytes, per kernel, kind and space, for tests/gpu/memcount.sh:
// key = kernel_id * 256 + kind * 8 + space.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct access_counts {
	__u64 accesses;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct access_counts);
} counts SEC(".maps");

SEC("gpu/mem/*|space=global+generic")
int at_access(struct wbpf_mem_ctx *ctx)
{
	__u32 key = (__u32)ctx->kernel_id * 256 + ctx->kind * 8 + ctx->space;
	struct access_counts *c = bpf_map_lookup_elem(&counts, &key);

	if (c) {
		c->accesses += 1;
		c->bytes += ctx->bytes;
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

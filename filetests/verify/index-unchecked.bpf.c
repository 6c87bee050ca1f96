// SPDX-License-Identifier: MIT OR Apache-2.0
// 32 lanes, a table of eight.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct row {
	__u64 lanes[8];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct row);
} rows SEC(".maps");

SEC("gpu/entry/*")
int probe(struct wbpf_kernel_ctx *ctx)
{
	__u32 zero = 0;
	struct row *row = bpf_map_lookup_elem(&rows, &zero);

	if (!row)
		return 0;
	if (ctx->thread_idx[0] < 64)
		row->lanes[ctx->lane] = 1;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Every thread overwrites a value of an array with its number.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

#define TABLE 1024

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TABLE);
	__type(key, __u32);
	__type(value, __u64);
} table SEC(".maps");

SEC("gpu/entry/vadd")
int update(struct wbpf_kernel_ctx *ctx)
{
	__u64 thread = ctx->block_idx[0] * ctx->block_dim[0] + ctx->thread_idx[0];
	__u32 key = thread % TABLE;

	bpf_map_update_elem(&table, &key, &thread, BPF_ANY);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

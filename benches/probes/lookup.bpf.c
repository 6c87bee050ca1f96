// SPDX-License-Identifier: MIT OR Apache-2.0
// Every thread looks a value of an array up, reads it, and counts it if it is not zero.
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

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} others SEC(".maps");

SEC("gpu/entry/vadd")
int look(struct wbpf_kernel_ctx *ctx)
{
	__u32 key = (ctx->block_idx[0] * ctx->block_dim[0] + ctx->thread_idx[0]) % TABLE, zero = 0;
	__u64 *value = bpf_map_lookup_elem(&table, &key), *n;

	if (!value || !*(volatile __u64 *)value)
		return 0;
	n = bpf_map_lookup_elem(&others, &zero);
	if (n)
		*n += 1;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// The answer of a lookup is used without a look at it.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} hits SEC(".maps");

SEC("gpu/entry/*")
int probe(struct wbpf_kernel_ctx *ctx)
{
	__u32 block = ctx->block_idx[0];
	__u64 *n = bpf_map_lookup_elem(&hits, &block);

	*n += 1;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

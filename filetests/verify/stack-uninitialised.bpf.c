// SPDX-License-Identifier: MIT OR Apache-2.0
// Padding of a key is part of the key.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct key {
	__u32 block;
	__u64 kernel;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, struct key);
	__type(value, __u64);
} keys SEC(".maps");

SEC("gpu/entry/*")
int probe(struct wbpf_kernel_ctx *ctx)
{
	struct key key;
	__u64 *n;

	key.block = ctx->block_idx[0];
	key.kernel = ctx->kernel_id;
	n = bpf_map_lookup_elem(&keys, &key);
	if (n)
		*n += 1;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

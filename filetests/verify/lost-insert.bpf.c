// SPDX-License-Identifier: MIT OR Apache-2.0
// The idiom of a million eBPF programs: counts the first hit of each key wrongly where many threads start at once.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

SEC("gpu/entry/*")
int probe(struct wbpf_kernel_ctx *ctx)
{
	__u32 block = ctx->block_idx[0];
	__u64 one = 1;
	__u64 *n = bpf_map_lookup_elem(&seen, &block);

	if (n)
		*n += 1;
	else
		bpf_map_update_elem(&seen, &block, &one, BPF_ANY);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

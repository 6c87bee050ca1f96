// SPDX-License-Identifier: MIT OR Apache-2.0 Comes beside replace.bpf.c in kernels of which there
// is only machine code: counts in a map of both, and only in one kernel, so that the two meet there
// and nowhere else.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2048);
	__type(key, __u32);
	__type(value, __u64);
} entered SEC(".maps");

SEC("gpu/entry/sums")
int other(struct wbpf_kernel_ctx *ctx)
{
	__u32 key = 1000;
	__u64 *count = bpf_map_lookup_elem(&entered, &key);

	if (count && !ctx->thread_idx[0] && !ctx->block_idx[0])
		*count += 1;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Would bring a hash that is larger than a session may be.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 22);
	__type(key, __u32);
	__type(value, __u64);
} vast SEC(".maps");

SEC("gpu/entry/*")
int fills(struct wbpf_kernel_ctx *ctx)
{
	__u32 key = ctx->thread_idx[0];
	__u64 one = 1;

	bpf_map_update_elem(&vast, &key, &one, BPF_ANY);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

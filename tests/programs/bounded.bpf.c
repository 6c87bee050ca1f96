// SPDX-License-Identifier: MIT OR Apache-2.0
// A loop that nothing bounds, whose rounds `rounds` says in some threads of each block, and a number that fits in the others.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} done SEC(".maps");

// Not const: the host may write it while kernels run.
__u64 rounds = 8;

SEC("gpu/entry/vectorAdd*")
int walks(struct wbpf_kernel_ctx *ctx)
{
	__u64 count = ctx->thread_idx[0] < 5 ? rounds : 8, *value;
	__u32 state = ctx->thread_idx[0], key = 0;

	for (__u64 k = 0; k < count; k++)
		state = state * 1664525 + 1013904223;
	value = bpf_map_lookup_elem(&done, &key);
	// What the loop has made is needed, or there would be none.
	if (value && state != 1)
		__sync_fetch_and_add(value, 1);
	return 0;
}

// Ends by itself.
SEC("gpu/exit/vectorAdd*")
int counts(struct wbpf_kernel_ctx *ctx)
{
	__u64 *value;
	__u32 key = 0;

	value = bpf_map_lookup_elem(&done, &key);
	if (value)
		__sync_fetch_and_add(value, 1000000);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// A lock of its own making.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct guarded {
	__u64 lock;
	__u64 sum;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct guarded);
} locks SEC(".maps");

SEC("gpu/entry/*")
int probe(struct wbpf_kernel_ctx *ctx)
{
	__u32 zero = 0;
	struct guarded *g = bpf_map_lookup_elem(&locks, &zero);

	if (!g)
		return 0;
	while (__sync_val_compare_and_swap(&g->lock, 0, 1) != 0)
		;
	g->sum = g->sum * 3 + ctx->lane;
	__sync_lock_test_and_set(&g->lock, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

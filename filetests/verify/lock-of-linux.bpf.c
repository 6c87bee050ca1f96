// SPDX-License-Identifier: MIT OR Apache-2.0
// A map whose values hold a lock of Linux.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct guarded {
	struct bpf_spin_lock lock;
	__u64 sum;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct guarded);
} guarded SEC(".maps");

SEC("gpu/entry/*")
int probe(struct wbpf_kernel_ctx *ctx)
{
	__u32 zero = 0;
	struct guarded *g = bpf_map_lookup_elem(&guarded, &zero);

	if (g)
		g->sum += 1;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

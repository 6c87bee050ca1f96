// SPDX-License-Identifier: MIT OR Apache-2.0
// A moving average: load, compute, store.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} averages SEC(".maps");

SEC("gpu/exit/*")
int probe(struct wbpf_kernel_ctx *ctx)
{
	__u32 zero = 0;
	__u64 *average = bpf_map_lookup_elem(&averages, &zero);

	if (average)
		*average = *average * 7 / 8 + ctx->sm;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

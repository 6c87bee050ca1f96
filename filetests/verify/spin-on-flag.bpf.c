// SPDX-License-Identifier: MIT OR Apache-2.0
// Waits for another thread to open the gate.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} gates SEC(".maps");

SEC("gpu/entry/*")
int probe(struct wbpf_kernel_ctx *ctx)
{
	__u32 zero = 0;
	volatile __u32 *gate = bpf_map_lookup_elem(&gates, &zero);

	if (!gate)
		return 0;
	while (!*gate)
		;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// The bound comes from a map.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} limits SEC(".maps");

SEC("gpu/entry/*")
int probe(struct wbpf_kernel_ctx *ctx)
{
	__u32 zero = 0, sum = 0;
	__u32 *limit = bpf_map_lookup_elem(&limits, &zero);

	if (!limit)
		return 0;
	for (__u32 i = 0; i < *limit; i++)
		sum += bpf_get_smp_processor_id() ^ i;
	*limit = sum;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

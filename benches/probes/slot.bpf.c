// SPDX-License-Identifier: MIT OR Apache-2.0
// Every thread adds one to a counter of its own.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERGPUTD_ARRAY);
	__uint(max_entries, 1);
	__uint(map_extra, 1 << 20);
	__type(key, __u32);
	__type(value, __u64);
} slots SEC(".maps");

SEC("gpu/entry/vadd")
int count(void *ctx)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&slots, &zero);

	if (n)
		*n += 1;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// A maximum that two threads can both improve, so that the smaller one stays.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} longest SEC(".maps");

SEC("gpu/exit/*")
int probe(struct wbpf_kernel_ctx *ctx)
{
	__u32 zero = 0;
	__u64 now = bpf_ktime_get_ns();
	__u64 *most = bpf_map_lookup_elem(&longest, &zero);

	if (most && *most < now)
		*most = now;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Every access of every kernel to global memory adds its bytes to one sum.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} bytes SEC(".maps");

SEC("gpu/mem/*|space=global")
int at_access(struct wbpf_mem_ctx *ctx)
{
	__u32 key = 0;
	__u64 *n = bpf_map_lookup_elem(&bytes, &key);

	if (n)
		*n += ctx->bytes;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

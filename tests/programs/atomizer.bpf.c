// SPDX-License-Identifier: MIT OR Apache-2.0
// Ends every thread of block 1 before it does anything.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} ended SEC(".maps");

SEC("gpu/entry/*")
int atomizer(struct wbpf_kernel_ctx *ctx)
{
	__u32 zero = 0;
	__u64 *n;

	if (ctx->block_idx[0] != 1)
		return 0;
	n = bpf_map_lookup_elem(&ended, &zero);
	if (n)
		*n += 1;
	bpf_gpu_exit();
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Counts entries and exits of threads, per kernel: key = kernel_id * 2 + (exit ? 1 : 0). For tests/kernels.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline int count(__u32 key)
{
	__u64 *n = bpf_map_lookup_elem(&counts, &key);

	if (n)
		*n += 1;
	return 0;
}

SEC("gpu/entry/*")
int at_entry(struct wbpf_kernel_ctx *ctx)
{
	return count((__u32)ctx->kernel_id * 2);
}

SEC("gpu/exit/*")
int at_exit(struct wbpf_kernel_ctx *ctx)
{
	return count((__u32)ctx->kernel_id * 2 + 1);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs that are in launches by NVTX ranges and by streams, beside one that is in all.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

/* By program. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 7);
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
int each(struct wbpf_kernel_ctx *ctx)
{
	return count(0);
}

SEC("gpu/entry/*|nvtx=step/forward+captured")
int forward(struct wbpf_kernel_ctx *ctx)
{
	return count(1);
}

SEC("gpu/exit/*|stream=default")
int by_default(struct wbpf_kernel_ctx *ctx)
{
	return count(2);
}

SEC("gpu/exit/*|stream=cop*+2")
int copies(struct wbpf_kernel_ctx *ctx)
{
	return count(3);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

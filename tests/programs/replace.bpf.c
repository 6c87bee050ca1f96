// SPDX-License-Identifier: MIT OR Apache-2.0 One of many versions of programs that are replaced
// while an application runs: the first thread of each grid counts at the kernel's start and at its
// end, under the version's number. A launch with parts of two versions would count under two
// numbers.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

#define VERSIONS 2048

const volatile __u32 version = 1;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, VERSIONS);
	__type(key, __u32);
	__type(value, __u64);
} entered SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, VERSIONS);
	__type(key, __u32);
	__type(value, __u64);
} left SEC(".maps");

static __always_inline int first(struct wbpf_kernel_ctx *ctx)
{
	return !ctx->thread_idx[0] && !ctx->block_idx[0];
}

SEC("gpu/entry/*")
int enter(struct wbpf_kernel_ctx *ctx)
{
	__u32 key = version;
	__u64 *count = bpf_map_lookup_elem(&entered, &key);

	if (count && first(ctx))
		*count += 1;
	return 0;
}

SEC("gpu/exit/*")
int leave(struct wbpf_kernel_ctx *ctx)
{
	__u32 key = version;
	__u64 *count = bpf_map_lookup_elem(&left, &key);

	if (count && first(ctx))
		*count += 1;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

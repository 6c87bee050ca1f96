// SPDX-License-Identifier: MIT OR Apache-2.0 Comes by a replacement, with maps that the session did
// not begin with: the first thread of each grid counts at the kernel's start in a hash, in an array
// with a value for each multiprocessor and in a variable, and at its end in an array.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

#define BEGAN 100

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} came SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} came_by_sm SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} went SEC(".maps");

__u64 seen = BEGAN;
const volatile __u32 under = 7;

static __always_inline int first(struct wbpf_kernel_ctx *ctx)
{
	return !ctx->thread_idx[0] && !ctx->block_idx[0];
}

SEC("gpu/entry/*")
int brought_in(struct wbpf_kernel_ctx *ctx)
{
	__u32 key = under, zero = 0;
	__u64 none = 0, *count;

	if (!first(ctx))
		return 0;
	__sync_fetch_and_add(&seen, 1);
	bpf_map_update_elem(&came, &key, &none, BPF_NOEXIST);
	count = bpf_map_lookup_elem(&came, &key);
	if (count)
		__sync_fetch_and_add(count, 1);
	count = bpf_map_lookup_elem(&came_by_sm, &zero);
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

SEC("gpu/exit/*")
int brought_out(struct wbpf_kernel_ctx *ctx)
{
	__u32 key = 1;
	__u64 *count = bpf_map_lookup_elem(&went, &key);

	if (count && first(ctx))
		*count += 1;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

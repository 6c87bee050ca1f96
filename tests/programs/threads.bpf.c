// SPDX-License-Identifier: MIT OR Apache-2.0
// Threads that began and threads that ended, of each kernel: what every back end can count.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

#define KERNELS 12288

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, KERNELS);
	__type(key, __u32);
	__type(value, __u64);
} began SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, KERNELS);
	__type(key, __u32);
	__type(value, __u64);
} ended SEC(".maps");

static __always_inline int count(void *map, __u32 kernel)
{
	__u64 *threads = bpf_map_lookup_elem(map, &kernel);

	if (threads)
		*threads += 1;
	return 0;
}

SEC("gpu/entry/*")
int begins(struct wbpf_kernel_ctx *ctx)
{
	return count(&began, ctx->kernel_id);
}

SEC("gpu/exit/*")
int ends(struct wbpf_kernel_ctx *ctx)
{
	return count(&ended, ctx->kernel_id);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

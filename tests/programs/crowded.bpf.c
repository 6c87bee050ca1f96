// SPDX-License-Identifier: MIT OR Apache-2.0
// Counts threads of kernels named `probed…`, with so many values at once that a kernel with it needs more registers than most do alone.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

#define VALUES 48

/* Threads; and something of the values, so that they are needed. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline void add(__u32 key, __u64 what)
{
	__u64 *n = bpf_map_lookup_elem(&counts, &key);

	if (n)
		__sync_fetch_and_add(n, what);
}

SEC("gpu/entry/probed*")
int crowded(struct wbpf_kernel_ctx *ctx)
{
	__u64 values[VALUES], sum = 0;

#pragma unroll
	for (int i = 0; i < VALUES; i++)
		values[i] = bpf_gpu_clock();
#pragma unroll
	for (int i = 0; i < VALUES; i++)
		sum = (sum ^ values[VALUES - 1 - i]) * 31;
	add(0, 1);
	add(1, sum);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Every function of the driver API that there is: calls and returns.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
#include "warpbpf_cuda.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} total SEC(".maps");

static __always_inline void add(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&total, &what);

	if (n)
		*n += 1;
}

SEC("cuda/*")
int started(struct wbpf_cuda_ctx *ctx)
{
	add(0);
	return 0;
}

SEC("cudaret/*")
int ended(struct wbpf_cuda_ctx *ctx)
{
	add(1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

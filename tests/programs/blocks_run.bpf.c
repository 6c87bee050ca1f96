// SPDX-License-Identifier: MIT OR Apache-2.0
// A kernel of its own, which has no launch record to count its threads in.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

__u64 all;

SEC("gpu/run")
int alone(struct wbpf_kernel_ctx *ctx)
{
	__u64 total;

	if (bpf_gpu_block_sum(1, &total))
		all = total;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

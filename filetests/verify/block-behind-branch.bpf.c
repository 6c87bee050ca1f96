// SPDX-License-Identifier: MIT OR Apache-2.0
// A maximum over the block to which only some threads come.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

__u64 latest;

SEC("gpu/entry/*")
int first_row(struct wbpf_kernel_ctx *ctx)
{
	__u64 all;

	if (ctx->thread_idx[1] != 0)
		return 0;
	if (bpf_gpu_block_max(bpf_ktime_get_ns(), &all))
		latest = all;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

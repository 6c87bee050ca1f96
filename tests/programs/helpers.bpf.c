// SPDX-License-Identifier: MIT OR Apache-2.0
// What the helpers say must agree with the context.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

/* 0: agreed, 1: did not, 2: pid is the host's */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} results SEC(".maps");

__u64 pid_tgid;

static __always_inline void note(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&results, &what);

	if (n)
		*n += 1;
}

SEC("gpu/entry/*")
int helpers(struct wbpf_kernel_ctx *ctx)
{
	__u64 x, y, z, ok = 1;

	bpf_gpu_block_idx(&x, &y, &z);
	ok &= x == ctx->block_idx[0] && y == ctx->block_idx[1] && z == ctx->block_idx[2];
	bpf_gpu_block_dim(&x, &y, &z);
	ok &= x == ctx->block_dim[0] && y == ctx->block_dim[1] && z == ctx->block_dim[2];
	bpf_gpu_thread_idx(&x, &y, &z);
	ok &= x == ctx->thread_idx[0] && y == ctx->thread_idx[1] && z == ctx->thread_idx[2];
	bpf_gpu_grid_dim(&x, &y, &z);
	ok &= x == ctx->grid_dim[0] && y == ctx->grid_dim[1] && z == ctx->grid_dim[2];
	ok &= bpf_gpu_sm_id() == ctx->sm && bpf_get_smp_processor_id() == ctx->sm;
	ok &= bpf_gpu_lane_id() == ctx->lane;
	bpf_gpu_membar();
	note(ok ? 0 : 1);
	if (ctx->block_idx[0] == 0 && ctx->thread_idx[0] < 2) {
		pid_tgid = bpf_get_current_pid_tgid();
		bpf_printk("thread %d of %d: %llx", ctx->thread_idx[0], ctx->block_dim[0], 255);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// A program at every kind of place and on both sides of what has two, each reading what it gets there: several programs at
// one site. Counts per kernel: key = kernel_id * 16 + program. For tests/kernels.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

/* Keeps the compiler from leaving out what a program reads. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} read SEC(".maps");

static __always_inline int count(__u64 kernel_id, __u32 what, __u64 value)
{
	__u32 key = (__u32)kernel_id * 16 + what, zero = 0;
	__u64 *n = bpf_map_lookup_elem(&counts, &key);
	__u64 *to = bpf_map_lookup_elem(&read, &zero);

	if (n)
		*n += 1;
	if (to)
		*to += value;
	return 0;
}

SEC("gpu/entry/*")
int at_entry(struct wbpf_kernel_ctx *ctx)
{
	return count(ctx->kernel_id, 0, ctx->args[0] + ctx->arg_count);
}

SEC("gpu/exit/*")
int at_exit(struct wbpf_kernel_ctx *ctx)
{
	return count(ctx->kernel_id, 1, ctx->active_mask);
}

SEC("gpu/mem/*")
int before_access(struct wbpf_mem_ctx *ctx)
{
	return count(ctx->kernel_id, 2, ctx->address + ctx->bytes + ctx->target + ctx->cache);
}

SEC("gpu/mem/*|when=after")
int after_access(struct wbpf_mem_ctx *ctx)
{
	return count(ctx->kernel_id, 3, ctx->address + ctx->value[0] + ctx->value[1] + ctx->value_bytes);
}

SEC("gpu/barrier/*")
int before_barrier(struct wbpf_barrier_ctx *ctx)
{
	return count(ctx->kernel_id, 4, ctx->barrier_id + ctx->threads + ctx->address);
}

SEC("gpu/barrier/*|when=after")
int after_barrier(struct wbpf_barrier_ctx *ctx)
{
	return count(ctx->kernel_id, 5, ctx->waited);
}

SEC("gpu/branch/*")
int at_branch(struct wbpf_branch_ctx *ctx)
{
	return count(ctx->kernel_id, 6, ctx->taken_mask + ctx->taken);
}

SEC("gpu/insn/*|op=*")
int at_instruction(struct wbpf_insn_ctx *ctx)
{
	return count(ctx->kernel_id, 7, ctx->line + ctx->site);
}

SEC("gpu/func/*")
int at_call(struct wbpf_site_ctx *ctx)
{
	return count(ctx->kernel_id, 8, ctx->site);
}

SEC("gpu/funcret/*")
int at_return(struct wbpf_site_ctx *ctx)
{
	return count(ctx->kernel_id, 9, ctx->site);
}

SEC("gpu/insn/*|op=mma.*")
int at_mma(struct wbpf_insn_ctx *ctx)
{
	return count(ctx->kernel_id, 10, ctx->operand[0] + ctx->operand_count);
}

SEC("gpu/insn/*|op=shfl.*,when=after")
int at_shuffle(struct wbpf_insn_ctx *ctx)
{
	return count(ctx->kernel_id, 11, ctx->operand[0] + ctx->operand[1]);
}

SEC("gpu/insn.warp/*|op=fma.*")
int at_fma(struct wbpf_insn_ctx *ctx)
{
	return count(ctx->kernel_id, 12, ctx->active_mask);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

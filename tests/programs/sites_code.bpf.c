// SPDX-License-Identifier: MIT OR Apache-2.0
// A program at each kind of place in the middle of the kernels of tests/apps/places.cu. tests/suite/src/places.rs knows the
// numbers.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

enum {
	BARRIERS,
	WAITED,
	WRONG_BARRIERS,
	FEW_LANES,
	FEW_TAKEN,
	FEW_THREADS,
	MORE_LANES,
	MORE_TAKEN,
	CALLS,
	RETURNS,
	ALL_CALLS,
	LINE_2000,
	LINE_2002,
	LINE_2004,
	WRONG_LINES,
	PRODUCTS,
	OPERANDS_A,
	OPERANDS_B,
	OPERANDS_C,
	OPERAND_COUNT,
	MIDDLE,
	WHATS,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WHATS);
	__type(key, __u32);
	__type(value, __u64);
} sums SEC(".maps");

/* Threads at branches, by place. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__type(key, wbpf_site_id_t);
	__type(value, __u64);
} branches SEC(".maps");

static __always_inline void add(__u32 what, __u64 number)
{
	__u64 *n = bpf_map_lookup_elem(&sums, &what);

	if (n)
		*n += number;
}

static __always_inline __u32 lanes(__u32 m)
{
	m = m - ((m >> 1) & 0x55555555);
	m = (m & 0x33333333) + ((m >> 2) & 0x33333333);
	return (((m + (m >> 4)) & 0x0f0f0f0f) * 0x01010101) >> 24;
}

SEC("gpu/barrier/*waits*|kind=sync,when=after")
int at_barrier(struct wbpf_barrier_ctx *ctx)
{
	add(BARRIERS, 1);
	add(WAITED, ctx->waited);
	if (ctx->kind != WBPF_BARRIER_SYNC || ctx->barrier_id != 1 || ctx->threads != 0)
		add(WRONG_BARRIERS, 1);
	return 0;
}

/* The one branch that few lanes take. */
SEC("gpu/branch.warp/*diverges*|at=places.cu:1007")
int at_few(struct wbpf_branch_ctx *ctx)
{
	add(FEW_LANES, lanes(ctx->active_mask));
	add(FEW_TAKEN, lanes(ctx->taken_mask));
	return 0;
}

SEC("gpu/branch/*diverges*|at=places.cu:1007")
int at_few_threads(struct wbpf_branch_ctx *ctx)
{
	if (ctx->taken)
		add(FEW_THREADS, 1);
	return 0;
}

SEC("gpu/branch/*diverges*")
int at_branch(struct wbpf_branch_ctx *ctx)
{
	wbpf_site_id_t site = ctx->site;
	__u64 *n = bpf_map_lookup_elem(&branches, &site);

	if (n)
		*n += 1;
	return 0;
}

/* The end of a loop of as many rounds as the lane's number. */
SEC("gpu/branch.warp/*diverges*|at=places.cu:1016")
int at_more(struct wbpf_branch_ctx *ctx)
{
	add(MORE_LANES, lanes(ctx->active_mask));
	add(MORE_TAKEN, lanes(ctx->taken_mask));
	return 0;
}

SEC("gpu/func/*calls*|func=*collatz*")
int at_call(struct wbpf_site_ctx *ctx)
{
	add(CALLS, 1);
	return 0;
}

SEC("gpu/funcret/*calls*|func=*collatz*")
int at_return(struct wbpf_site_ctx *ctx)
{
	add(RETURNS, 1);
	return 0;
}

/* Every device function that the kernel reaches: there is one. */
SEC("gpu/func/*calls*")
int at_any_call(struct wbpf_site_ctx *ctx)
{
	add(ALL_CALLS, 1);
	return 0;
}

static __always_inline int line(struct wbpf_site_ctx *ctx, __u32 what, __u32 number)
{
	add(what, 1);
	if (ctx->line != number)
		add(WRONG_LINES, 1);
	return 0;
}

SEC("gpu/line/*numbered*|at=places.cu:2000")
int at_2000(struct wbpf_site_ctx *ctx)
{
	return line(ctx, LINE_2000, 2000);
}

SEC("gpu/line/*numbered*|at=places.cu:2002")
int at_2002(struct wbpf_site_ctx *ctx)
{
	return line(ctx, LINE_2002, 2002);
}

SEC("gpu/line/*numbered*|at=places.cu:2004")
int at_2004(struct wbpf_site_ctx *ctx)
{
	return line(ctx, LINE_2004, 2004);
}

SEC("gpu/insn/*products*|op=dp4a.*")
int at_product(struct wbpf_insn_ctx *ctx)
{
	add(PRODUCTS, 1);
	add(OPERANDS_A, ctx->operand[0]);
	add(OPERANDS_B, ctx->operand[1]);
	add(OPERANDS_C, ctx->operand[2]);
	add(OPERAND_COUNT, ctx->operand_count);
	return 0;
}

/* In the middle of a line, by opcode, place and function together. */
SEC("gpu/insn/*numbered*|op=st.global.*,at=places.cu:2004,func=*numbered*")
int at_store(struct wbpf_insn_ctx *ctx)
{
	add(MIDDLE, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Aggregates over blocks: by kernel, block and call how often there was one, and the sum of what they were.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct key {
	__u32 kernel;
	__u32 block;
	__u32 threads; /* of the block: a kernel is launched with several shapes */
	__u32 call;
};

struct value {
	__u64 times;
	__u64 total;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct key);
	__type(value, struct value);
} blocks SEC(".maps");

/* 0: results where there was none; 1: without room in the hash. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} faults SEC(".maps");

static __always_inline void fault(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&faults, &what);

	if (n)
		__sync_fetch_and_add(n, 1);
}

static __always_inline __u32 threads(struct wbpf_kernel_ctx *ctx)
{
	return ctx->block_dim[0] * ctx->block_dim[1] * ctx->block_dim[2];
}

static __always_inline void note(struct wbpf_kernel_ctx *ctx, __u32 call, long last, __u64 total)
{
	struct key key = {};
	struct value none = {}, *value;

	if (!last) {
		if (total)
			fault(0);
		return;
	}
	key.kernel = (__u32)ctx->kernel_id;
	key.block = (__u32)bpf_gpu_block_id();
	key.threads = threads(ctx);
	key.call = call;
	bpf_map_update_elem(&blocks, &key, &none, BPF_NOEXIST);
	value = bpf_map_lookup_elem(&blocks, &key);
	if (!value) {
		fault(1);
		return;
	}
	__sync_fetch_and_add(&value->times, 1);
	__sync_fetch_and_add(&value->total, total);
}

/* What a thread brings; the suite computes the same. */
static __always_inline __u64 of_thread(struct wbpf_kernel_ctx *ctx)
{
	__u64 thread = ctx->thread_idx[0] + ctx->block_dim[0] * (ctx->thread_idx[1] + ctx->block_dim[1] * ctx->thread_idx[2]);

	return (thread + 1) * 2654435761ull + bpf_gpu_block_id() * 0x100000001b3ull;
}

SEC("gpu/entry/*")
int begun(struct wbpf_kernel_ctx *ctx)
{
	__u64 total, value = of_thread(ctx);
	long last = bpf_gpu_block_sum(value, &total);

	note(ctx, 0, last, total);
	last = bpf_gpu_block_min(value, &total);
	note(ctx, 1, last, total);
	return 0;
}

SEC("gpu/exit/*")
int ended(struct wbpf_kernel_ctx *ctx)
{
	__u64 total, value = of_thread(ctx);
	long last = bpf_gpu_block_max(value, &total);

	note(ctx, 2, last, total);
	last = bpf_gpu_block_and(value | 0x10001, &total);
	note(ctx, 3, last, total);
	return 0;
}

/* Another program at the same place, with one call for even and odd threads. */
SEC("gpu/exit/*")
int beside(struct wbpf_kernel_ctx *ctx)
{
	__u64 total;
	long last = bpf_gpu_block_or(of_thread(ctx) & 0xffffffff0ull, &total);

	note(ctx, 4, last, total);
	last = bpf_gpu_block_sum(ctx->thread_idx[0] & 1 ? 2 : 1, &total);
	note(ctx, 5, last, total);
	return 0;
}

/* What counts arrivals, too. */
SEC("gpu/exit.block/*")
int left(struct wbpf_kernel_ctx *ctx)
{
	note(ctx, 6, 1, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

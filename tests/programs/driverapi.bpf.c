// SPDX-License-Identifier: MIT OR Apache-2.0
// Calls of the driver API, counted and compared with what kernels see of the same launches.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
#include "warpbpf_cuda.h"

struct calls {
	__u64 started;
	__u64 ended;
	__u64 failed;
	__u64 per_thread;
	__u64 timed;
};

/* By number of the function. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct calls);
} calls SEC(".maps");

enum {
	BYTES_IN,	/* bytes of cuMemcpyHtoDAsync */
	BYTES_OUT,	/* of cuMemcpyDtoHAsync, refused ones not */
	WORDS,		/* words of cuMemsetD32Async */
	BLOCKS,		/* blocks of launches */
	LAUNCHES,	/* sum of launches' numbers, as the host has them */
	ON_DEVICE,	/* the same, as kernels have them */
	STRANGE,	/* what should not be */
	WAITS,		/* cuStreamSynchronize, by another program than the globs */
	SUMS
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SUMS);
	__type(key, __u32);
	__type(value, __u64);
} sums SEC(".maps");

static __always_inline void add(__u32 what, __u64 number)
{
	__u64 *n = bpf_map_lookup_elem(&sums, &what);

	if (n)
		__sync_fetch_and_add(n, number);
}

static __always_inline struct calls *calls_of(struct wbpf_cuda_ctx *ctx)
{
	__u32 api = ctx->api;
	struct calls none = {};

	bpf_map_update_elem(&calls, &api, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&calls, &api);
}

static __always_inline void started(struct wbpf_cuda_ctx *ctx)
{
	struct calls *c = calls_of(ctx);

	if (c) {
		c->started++;
		c->per_thread += ctx->per_thread;
	}
	/* The first argument, as programs at functions find it. */
	if (ctx->regs[14] != ctx->args[0] || ctx->result || ctx->duration_ns || !ctx->start_ns)
		add(STRANGE, 1);
}

SEC("cuda/cuMem*Async")
int memory(struct wbpf_cuda_ctx *ctx)
{
	started(ctx);
	if (ctx->api == WBPF_API_cuMemcpyHtoDAsync)
		add(BYTES_IN, WBPF_ARGS(cuMemcpyHtoDAsync, ctx)->ByteCount);
	else if (ctx->api == WBPF_API_cuMemsetD32Async)
		add(WORDS, WBPF_ARGS(cuMemsetD32Async, ctx)->N);
	return 0;
}

SEC("cuda/cuLaunchKernel")
int launch(struct wbpf_cuda_ctx *ctx)
{
	started(ctx);
	add(BLOCKS, WBPF_ARGS(cuLaunchKernel, ctx)->gridDimX);
	add(LAUNCHES, ctx->launch_id);
	if (WBPF_ARGS(cuLaunchKernel, ctx)->sharedMemBytes || WBPF_ARGS(cuLaunchKernel, ctx)->extra || ctx->arg_count != 11)
		add(STRANGE, 1);
	return 0;
}

SEC("cuda/cuStreamSynchronize")
int waits(struct wbpf_cuda_ctx *ctx)
{
	add(WAITS, 1);
	return 0;
}

static __always_inline void ended(struct wbpf_cuda_ctx *ctx)
{
	struct calls *c = calls_of(ctx);

	if (!c)
		return;
	c->ended++;
	c->failed += ctx->result != 0;
	c->timed += ctx->duration_ns != 0;
}

SEC("cudaret/cuMem*Async")
int memory_done(struct wbpf_cuda_ctx *ctx)
{
	ended(ctx);
	/* Arguments are still there. */
	if (ctx->api == WBPF_API_cuMemcpyDtoHAsync && !ctx->result)
		add(BYTES_OUT, WBPF_ARGS(cuMemcpyDtoHAsync, ctx)->ByteCount);
	return 0;
}

SEC("cudaret/cuLaunchKernel")
int launch_done(struct wbpf_cuda_ctx *ctx)
{
	ended(ctx);
	return 0;
}

SEC("gpu/entry.block/scale")
int scale(struct wbpf_kernel_ctx *ctx)
{
	if (ctx->block_idx[0] == 0)
		add(ON_DEVICE, ctx->launch_id);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// How long each block of each launch runs, how many run at once, and how the launch ends. Only what programs can see in machine code is used: entries by
// warp, exits by thread, and %gridid.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
#include "launches.h"

#define LAUNCH_BITS 16
#define PROBES 8

/* Launches whose blocks are timed at once, and the blocks of each that are: each has a word. */
#define REGIONS 32
#define BLOCKS 131072

/* `--set timed_blocks=N`: of each launch only the first N; `--set timed_launches=N`: fewer at once. */
const volatile __u32 timed_blocks = BLOCKS;
const volatile __u32 timed_launches = REGIONS;

struct launch {
	__u64 grid; /* %gridid + 1; 0: nobody's */
	__u64 kernel;
	__u64 blocks;
	__u64 threads; /* of a block */
	__u64 region; /* TIMED or UNTIMED, once that is decided */
	/* Blocks, of which those that were timed end. One word, whose value says how many run at once. */
	__u32 ended;
	__u32 begun;
	__u64 left; /* threads that are done, of launches with blocks that are not timed */
	__u64 busy_ns; /* of all timed blocks */
	__u64 longest_ns;
	__u64 peak; /* most blocks that ran at once */
	__u64 first_begin;
	__u64 last_begin;
	__u64 first_end; /* of a block that was timed */
	__u64 last_end;
};

#define BEGUN 32

/* Who is counted among the last may not be the last by the clock, but is among so many. */
#define LAST 4096

#define TIMED 1
#define UNTIMED 2

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << LAUNCH_BITS);
	__type(key, __u32);
	__type(value, struct launch);
} launches SEC(".maps");

/* Whose each region is: %gridid + 1. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, REGIONS);
	__type(key, __u32);
	__type(value, __u64);
} regions SEC(".maps");

/* Of a block that runs: when it began, and below that how many of its threads are done. 0 again when it has ended. One word, so that no two are to be
 * seen in order. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, REGIONS * BLOCKS);
	__type(key, __u32);
	__type(value, __u64);
} running SEC(".maps");

#define DONE_BITS 11

struct threads {
	__u64 entered;
	__u64 left;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, KERNELS);
	__type(key, __u32);
	__type(value, struct threads);
} threads SEC(".maps");

struct losses {
	__u64 unrecorded; /* blocks of launches for which there was no room */
	__u64 untimed; /* blocks for which there was none */
	__u64 unsettled; /* times that a longest, first or last was left to others */
};

/* Hardly ever written to, so one copy does. */
struct {
	__uint(type, BPF_MAP_TYPE_GPU_ARRAY);
	__uint(max_entries, KERNELS);
	__type(key, __u32);
	__type(value, struct losses);
} lost SEC(".maps");

/* Blocks by the time that they took: eight steps for each power of two of nanoseconds, as `bucket_of` has them. */
#define BUCKETS 256

struct {
	__uint(type, BPF_MAP_TYPE_GPU_ARRAY);
	__uint(max_entries, KERNELS * BUCKETS);
	__type(key, __u32);
	__type(value, __u64);
} times SEC(".maps");

static __always_inline __u32 bucket_of(__u64 ns)
{
	__u64 rest = ns;
	__u32 log = 0, bucket;

	if (ns < 8)
		return ns;
	for (__u32 step = 32; step; step >>= 1)
		if (rest >> step) {
			rest >>= step;
			log += step;
		}
	bucket = (log - 2) * 8 + ((ns >> (log - 3)) & 7);
	return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

static __always_inline __u64 blocks_of(struct wbpf_kernel_ctx *ctx)
{
	return (__u64)ctx->grid_dim[0] * ctx->grid_dim[1] * ctx->grid_dim[2];
}

static __always_inline __u64 threads_of(struct wbpf_kernel_ctx *ctx)
{
	return (__u64)ctx->block_dim[0] * ctx->block_dim[1] * ctx->block_dim[2];
}

/* The launch's entry, which whoever comes first makes. */
static __always_inline struct launch *launch_of(struct wbpf_kernel_ctx *ctx)
{
	__u64 grid = ctx->grid_id + 1;
	__u32 at = place_of(grid, LAUNCH_BITS);

	for (__u32 probe = 0; probe < PROBES; probe++) {
		__u32 key = (at + probe) & ((1 << LAUNCH_BITS) - 1);
		struct launch *l = bpf_map_lookup_elem(&launches, &key);
		__u64 there;

		if (!l)
			return 0;
		there = *(volatile __u64 *)&l->grid;
		if (!there) {
			there = __sync_val_compare_and_swap(&l->grid, 0, grid);
			if (!there) {
				l->kernel = ctx->kernel_id;
				l->blocks = blocks_of(ctx);
				l->threads = threads_of(ctx);
				return l;
			}
		}
		if (there == grid)
			return l;
	}
	return 0;
}

static __always_inline __u32 region_of(__u64 grid)
{
	return grid % (timed_launches < REGIONS ? timed_launches : REGIONS);
}

/* Do blocks of the launch have words? All warps of it must get the same answer, though another launch's region may become free meanwhile: the first
 * answer that reaches the launch's entry is everybody's. */
static __always_inline int is_timed(struct launch *l, __u64 grid)
{
	__u64 decided = *(volatile __u64 *)&l->region, before, wish, other;
	__u32 region = region_of(grid);
	__u64 *owner;

	if (decided)
		return decided == TIMED;
	owner = bpf_map_lookup_elem(&regions, &region);
	if (!owner)
		return 0;
	before = __sync_val_compare_and_swap(owner, 0, grid);
	wish = !before || before == grid ? TIMED : UNTIMED;
	other = __sync_val_compare_and_swap(&l->region, 0, wish);
	decided = other ? other : wish;
	if (decided == UNTIMED && wish == TIMED)
		__sync_val_compare_and_swap(owner, grid, 0);
	return decided == TIMED;
}

static __always_inline __u64 *word_of(__u64 grid, __u64 block)
{
	__u32 key = region_of(grid) * BLOCKS + (__u32)block;

	if (block >= BLOCKS || block >= timed_blocks)
		return 0;
	return bpf_map_lookup_elem(&running, &key);
}

/* Whoever loses the word to a larger value has nothing left to do. */
static __always_inline int raise(__u64 *most, __u64 value)
{
	__u64 there = *(volatile __u64 *)most;

	for (__u32 i = 0; i < 32; i++) {
		__u64 before;

		if (there >= value)
			return 1;
		before = __sync_val_compare_and_swap(most, there, value);
		if (before == there)
			return 1;
		there = before;
	}
	return 0;
}

/* The same of the smallest, where 0 is nobody's. */
static __always_inline int lower(__u64 *least, __u64 value)
{
	__u64 there = *(volatile __u64 *)least;

	for (__u32 i = 0; i < 32; i++) {
		__u64 before;

		if (there && there <= value)
			return 1;
		before = __sync_val_compare_and_swap(least, there, value);
		if (before == there)
			return 1;
		there = before;
	}
	return 0;
}

enum loss {
	UNRECORDED,
	UNTIMED_BLOCK,
	UNSETTLED,
};

static __always_inline void lose(__u32 kernel, enum loss what)
{
	struct losses *of = bpf_map_lookup_elem(&lost, &kernel);

	if (!of)
		return;
	if (what == UNRECORDED)
		of->unrecorded += 1;
	else if (what == UNTIMED_BLOCK)
		of->untimed += 1;
	else
		of->unsettled += 1;
}

SEC("gpu/entry.warp/*")
int begins(struct wbpf_kernel_ctx *ctx)
{
	__u64 now = bpf_ktime_get_ns(), grid = ctx->grid_id + 1, both, begun, *word = 0;
	__u32 kernel = ctx->kernel_id;
	struct threads *all = bpf_map_lookup_elem(&threads, &kernel);
	struct launch *l;
	int settled;

	if (all)
		all->entered += count(ctx->active_mask);
	/* The block's first thread. */
	if (ctx->warp)
		return 0;
	l = launch_of(ctx);
	if (!l) {
		lose(kernel, UNRECORDED);
		return 0;
	}
	both = __sync_fetch_and_add((__u64 *)(void *)&l->ended, 1ULL << BEGUN);
	begun = (both >> BEGUN) + 1;
	settled = lower(&l->first_begin, now);
	if (begun + LAST > blocks_of(ctx))
		settled &= raise(&l->last_begin, now);
	if (is_timed(l, grid))
		word = word_of(grid, bpf_gpu_block_id());
	if (word)
		settled &= raise(&l->peak, begun - (both & 0xffffffff));
	else
		lose(kernel, UNTIMED_BLOCK);
	if (!settled)
		lose(kernel, UNSETTLED);
	/* What the program took is no part of the block's time. */
	if (word)
		__sync_fetch_and_add(word, bpf_ktime_get_ns() << DONE_BITS);
	return 0;
}

SEC("gpu/exit/*")
int ends(struct wbpf_kernel_ctx *ctx)
{
	__u64 now = bpf_ktime_get_ns(), grid = ctx->grid_id + 1, limit = timed_blocks < BLOCKS ? timed_blocks : BLOCKS;
	__u64 of_block, blocks, lanes, ns = 0, ended = 0, *word = 0, *bucket;
	__u32 kernel = ctx->kernel_id, key;
	int settled = 1, timed, is_last;
	struct threads *all;
	struct launch *l;

	if (!bpf_gpu_warp_leader())
		return 0;
	lanes = count(ctx->active_mask);
	all = bpf_map_lookup_elem(&threads, &kernel);
	if (all)
		all->left += lanes;
	l = launch_of(ctx);
	if (!l)
		return 0;
	of_block = threads_of(ctx);
	blocks = blocks_of(ctx);
	timed = is_timed(l, grid);
	if (timed)
		word = word_of(grid, bpf_gpu_block_id());
	if (word) {
		__u64 last = __sync_fetch_and_add(word, lanes) + lanes;

		if ((last & ((1 << DONE_BITS) - 1)) != of_block)
			return 0;
		/* What comes behind depends on what was there, so the word is free before anybody can take the region for the next launch. */
		last = __sync_lock_test_and_set(word, 0);
		if (!last)
			return 0;
		/* Both are cut alike. A warp that ends may read the clock before the first one has begun. */
		ns = ((now << DONE_BITS) - (last & ~((1ULL << DONE_BITS) - 1))) >> DONE_BITS;
		if (ns >> 52)
			ns = 0;
		lanes = of_block;
		__sync_fetch_and_add(&l->busy_ns, ns);
		settled = raise(&l->longest_ns, ns) & lower(&l->first_end, now);
		ended = (__sync_fetch_and_add((__u64 *)(void *)&l->ended, 1) & 0xffffffff) + 1;
	}
	if (timed && blocks <= limit) {
		is_last = ended == blocks;
		if (ended + LAST > blocks)
			settled &= raise(&l->last_end, now);
	} else {
		is_last = __sync_fetch_and_add(&l->left, lanes) + lanes == of_block * blocks;
		settled &= raise(&l->last_end, now);
	}
	if (is_last && timed) {
		__u32 region = region_of(grid);
		__u64 *owner = bpf_map_lookup_elem(&regions, &region);

		if (owner)
			__sync_val_compare_and_swap(owner, grid, 0);
	}
	if (!settled)
		lose(kernel, UNSETTLED);
	/* Last, as each bucket is a path of its own to the verifier. */
	key = kernel * BUCKETS + bucket_of(ns);
	bucket = word && kernel < KERNELS ? bpf_map_lookup_elem(&times, &key) : 0;
	if (bucket)
		__sync_fetch_and_add(bucket, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// How long each block of each launch runs, how many run at once, and how the launch ends. Only what programs can see in machine code is used: entries,
// exits by thread, and %gridid. It is short, because Compute Sanitizer puts it into all kernels of a file and takes the longer for it the more there is.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

/* Kernels by number: as many as a map may have that is summed over the multiprocessors of a large GPU. The report says what is missing. */
#define KERNELS 12288

/* Launches follow each other in %gridid, and each has the place of its number; the first that comes keeps it. */
#define LAUNCHES 65536

/* So many launches at once have words for their blocks, and so many blocks of each. */
#define AT_ONCE 32
#define BLOCKS 131072

/* `--set timed_blocks=N`, and powers of two, `--set timed_launches=N`, `--set timed_at_once=N`: fewer. */
const volatile __u32 timed_launches = LAUNCHES;
const volatile __u32 timed_blocks = BLOCKS;
const volatile __u32 timed_at_once = AT_ONCE;

struct launch {
	__u64 grid; /* %gridid + 1; 0: nobody's */
	__u64 kernel;
	__u64 blocks;
	__u64 threads; /* of a block */
	__u64 came; /* when the first block came, by `bpf_ktime_get_ns` */
	/* Blocks that were timed. One word, whose value says how many run at once. */
	__u32 ended;
	__u32 begun;
	__u64 busy_ns; /* of all timed blocks */
	__u64 peak; /* most blocks that ran at once, as seen when one ended */
	/* By the device's own clock, of the blocks that counted as first and last. */
	__u64 first_begin;
	__u64 last_begin;
	__u64 first_end;
	__u64 last_end;
};

#define BEGUN 32

/* How often a block tries to raise `peak`, which others raise at the same time: the verifier wants an end. */
#define PEAK_TRIES 64

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LAUNCHES);
	__type(key, __u32);
	__type(value, struct launch);
} launches SEC(".maps");

/* Of a block that runs: when it began, and below that how many of its threads are done. 0 again when it has ended. One word, so that no two are to be
 * seen in order. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, AT_ONCE * BLOCKS);
	__type(key, __u32);
	__type(value, __u64);
} running SEC(".maps");

#define DONE_BITS 11

/* Threads that began. That all of a block ended is what ends the block. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, KERNELS);
	__type(key, __u32);
	__type(value, __u64);
} threads SEC(".maps");

/* Blocks by the time that they took: eight steps for each power of two of nanoseconds. */
#define BUCKETS 256

struct {
	__uint(type, BPF_MAP_TYPE_GPU_ARRAY);
	__uint(max_entries, KERNELS * BUCKETS);
	__type(key, __u32);
	__type(value, __u64);
} times SEC(".maps");

struct losses {
	__u64 unrecorded; /* launches whose place another one has */
	__u64 untimed; /* blocks beyond those that have words */
	__u64 met; /* blocks whose word was another's: too many launches at once */
};

struct {
	__uint(type, BPF_MAP_TYPE_GPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct losses);
} lost SEC(".maps");

static __always_inline __u64 blocks_of(struct wbpf_kernel_ctx *ctx)
{
	return (__u64)ctx->grid_dim[0] * ctx->grid_dim[1] * ctx->grid_dim[2];
}

static __always_inline __u64 threads_of(struct wbpf_kernel_ctx *ctx)
{
	return (__u64)ctx->block_dim[0] * ctx->block_dim[1] * ctx->block_dim[2];
}

/* The launch's place, which is its own from when somebody asks for it first: a thread may end before the first one of its block has begun. Null if another
 * launch has it. */
static __always_inline struct launch *place_of(__u64 grid)
{
	__u32 key = grid & (timed_launches - 1);
	struct launch *l = bpf_map_lookup_elem(&launches, &key);
	__u64 there;

	if (!l)
		return 0;
	there = *(volatile __u64 *)&l->grid;
	if (!there)
		there = __sync_val_compare_and_swap(&l->grid, 0, grid);
	return !there || there == grid ? l : 0;
}

static __always_inline __u64 *word_of(__u64 grid, __u64 block)
{
	__u32 key = (grid & (timed_at_once - 1)) * BLOCKS + (__u32)block;

	if (block >= timed_blocks)
		return 0;
	return bpf_map_lookup_elem(&running, &key);
}

SEC("gpu/entry/*")
int begins(struct wbpf_kernel_ctx *ctx)
{
	__u64 grid = ctx->grid_id + 1, block, now, begun, blocks, *word, *entered;
	__u32 kernel = ctx->kernel_id, only = 0;
	struct losses *loss;
	struct launch *l;

	if (!bpf_gpu_warp_leader())
		return 0;
	entered = bpf_map_lookup_elem(&threads, &kernel);
	if (entered)
		*entered += bpf_gpu_warp_lanes();
	/* Of a block its first thread counts; its warp may come in parts. */
	if (ctx->warp || ctx->lane)
		return 0;
	loss = bpf_map_lookup_elem(&lost, &only);
	if (!loss)
		return 0;
	block = bpf_gpu_block_id();
	l = place_of(grid);
	if (!l) {
		if (!block)
			loss->unrecorded += 1;
		return 0;
	}
	word = word_of(grid, block);
	if (!word) {
		loss->untimed += 1;
		return 0;
	}
	blocks = blocks_of(ctx);
	begun = (__sync_fetch_and_add((__u64 *)(void *)&l->ended, 1ULL << BEGUN) >> BEGUN) + 1;
	if (begun == 1) {
		l->kernel = kernel;
		l->blocks = blocks;
		l->threads = threads_of(ctx);
		l->came = bpf_ktime_get_ns();
	}
	/* What the program took until here is no part of the block's time. */
	now = bpf_gpu_globaltimer();
	if (begun == 1)
		l->first_begin = now;
	if (begun == blocks)
		l->last_begin = now;
	if (__sync_fetch_and_add(word, now << DONE_BITS) >> DONE_BITS)
		loss->met += 1;
	return 0;
}

SEC("gpu/exit/*")
int ends(struct wbpf_kernel_ctx *ctx)
{
	__u64 now = bpf_gpu_globaltimer(), grid = ctx->grid_id + 1, ns, begin, both, lanes, there, seen, at_once, *word, *bucket;
	__u32 kernel = ctx->kernel_id, key, tries;
	struct launch *l;

	if (!bpf_gpu_warp_leader())
		return 0;
	l = place_of(grid);
	word = word_of(grid, bpf_gpu_block_id());
	if (!l || !word)
		return 0;
	lanes = bpf_gpu_warp_lanes();
	if (((__sync_fetch_and_add(word, lanes) + lanes) & ((1 << DONE_BITS) - 1)) != threads_of(ctx))
		return 0;
	/* What comes behind depends on what was there, so the word is free before the block counts as ended. */
	ns = __sync_lock_test_and_set(word, 0);
	if (!ns)
		return 0;
	/* A warp that left before the first one began may be the last to count: what it has read of the clock lies before the begin then. */
	begin = ns & ~((1ULL << DONE_BITS) - 1);
	if ((__s64)((now << DONE_BITS) - begin) < 0)
		now = bpf_gpu_globaltimer();
	ns = ((now << DONE_BITS) - begin) >> DONE_BITS;
	__sync_fetch_and_add(&l->busy_ns, ns);
	both = __sync_fetch_and_add((__u64 *)(void *)&l->ended, 1);
	at_once = (both >> BEGUN) - (both & 0xffffffff);
	both = (both & 0xffffffff) + 1;
	if (both == 1)
		l->first_end = now;
	/* A try that fails has found more there, so few do. */
	there = *(volatile __u64 *)&l->peak;
	for (tries = 0; tries < PEAK_TRIES && at_once > there; tries++) {
		seen = __sync_val_compare_and_swap(&l->peak, there, at_once);
		there = seen == there ? at_once : seen;
	}
	if (both == blocks_of(ctx))
		l->last_end = now;
	key = kernel * BUCKETS;
	for (; ns > 15 && key % BUCKETS < BUCKETS - 16; ns >>= 1)
		key += 8;
	key += ns & 15;
	bucket = kernel < KERNELS ? bpf_map_lookup_elem(&times, &key) : 0;
	if (bucket)
		__sync_fetch_and_add(bucket, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// How long each block of each launch runs, how many run at once, and how the launch ends. Only what programs can see in machine code is used: entries,
// exits by thread, and %gridid. It is short, because Compute Sanitizer puts it into all kernels of a file and takes the longer for it the more there is.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

/* Kernels by number: as many as a map may have that is summed over the multiprocessors of a large GPU. The report says what is missing. */
#define KERNELS 12288

/* Launches follow each other in %gridid, and each has the place of its number; the first that comes keeps it. */
#define LAUNCHES 32768

/* So many launches at once have words for their blocks, and so many blocks of each. */
#define AT_ONCE 32
#define BLOCKS 131072

/* What all blocks of a launch add to is there for each of so many parts of the multiprocessors: thousands of blocks at one address are what such a program
 * costs most. The report adds them up. */
#define PARTS 128

/* Multiprocessors, of which each counts its blocks. A power of two. */
#define SMS 256

/* `--set timed_blocks=N`, and powers of two, `--set timed_launches=N`, `--set timed_at_once=N`: fewer. */
const volatile __u32 timed_launches = LAUNCHES;
const volatile __u32 timed_blocks = BLOCKS;
const volatile __u32 timed_at_once = AT_ONCE;

/* Written when block 0 begins. */
struct launch {
	__u64 grid; /* %gridid + 1, of which there are 32 bits everywhere; 0: nobody's */
	__u64 kernel;
	__u64 blocks;
	__u64 timed; /* of them */
	__u64 threads; /* of a block */
	__u64 came; /* by `bpf_ktime_get_ns` */
	__u64 clock; /* then, on the device: near it are the times of parts */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LAUNCHES);
	__type(key, __u32);
	__type(value, struct launch);
} launches SEC(".maps");

#define HISTOGRAM_BITS 11

/* Times of a part are in steps of 16 ns, cut to 32 bits: 68 s, from shortly before its launch's on. */
#define STEP_BITS 4

/* How many have ended, below how many nanoseconds they took together: no more than are timed, so that the time has 46 bits. */
#define ENDED_BITS 18

/* Of the timed blocks of a launch that have ended on a part. 32 bytes, which memory takes at once. */
struct part {
	/* Whose it is: %gridid + 1, and below that the number of its kernel's histogram. 0: nobody's. The first block that ends here makes it its launch's. */
	__u64 owner;
	__u64 done;
	/* Of the first that ended: nothing had made room for it, so it is of those that began first. The end below the begin. */
	__u64 first;
	/* The last end below the last begin. Of blocks that write at once the last one is not known, so they are about right. */
	__u64 last;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PARTS * LAUNCHES);
	__type(key, __u32);
	__type(value, struct part);
} parts SEC(".maps");

/* Of a launch, for each multiprocessor: bit N - 1 is set if N of its blocks were there when one ended. */
struct peaks {
	__u32 of[SMS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LAUNCHES);
	__type(key, __u32);
	__type(value, struct peaks);
} peaks SEC(".maps");

/* Blocks of a launch that are on a multiprocessor now. A line of memory for each, as nothing else is to wait for it. */
struct alive {
	__u32 blocks;
	__u32 rest[31];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, AT_ONCE * SMS);
	__type(key, __u32);
	__type(value, struct alive);
} alive SEC(".maps");

/* Of a block that runs: when it began, below that how many have (1, if launches do not meet), and below that, negative, how many of their threads are not done: less
 * than 0 from the first begin on, but for warps that are done before. 0 again when all have ended, however many met. One word, so that no two are to be seen in
 * order. The time is cut to 36 minutes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, AT_ONCE * BLOCKS);
	__type(key, __u32);
	__type(value, __u64);
} running SEC(".maps");

#define LEFT_BITS 17
#define BEGUN_BITS 6
#define LOW_BITS (LEFT_BITS + BEGUN_BITS)

/* Threads that began. That all of a block ended is what ends the block. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, KERNELS);
	__type(key, __u32);
	__type(value, __u64);
} threads SEC(".maps");

/* Kernels that were launched have histograms, each the first free one of so many from its own number on. */
#define HISTOGRAMS 1024
#define TRIES 16
#define SPREAD 16

/* Whose each histogram is: the kernel's number + 1. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HISTOGRAMS);
	__type(key, __u32);
	__type(value, __u32);
} histograms SEC(".maps");

/* Blocks by the time that they took: eight steps for each power of two of nanoseconds. */
#define BUCKETS 256

struct {
	__uint(type, BPF_MAP_TYPE_GPU_ARRAY);
	__uint(max_entries, SPREAD * HISTOGRAMS * BUCKETS);
	__type(key, __u32);
	__type(value, __u64);
} times SEC(".maps");

struct losses {
	__u64 unrecorded; /* launches whose place another one has */
	__u64 met; /* blocks whose word was another's: too many launches at once */
	__u64 unsorted; /* blocks of kernels without a histogram */
};

struct {
	__uint(type, BPF_MAP_TYPE_GPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct losses);
} lost SEC(".maps");

static __always_inline __u32 blocks_of(struct wbpf_kernel_ctx *ctx)
{
	return ctx->grid_dim[0] * ctx->grid_dim[1] * ctx->grid_dim[2];
}

static __always_inline __u32 threads_of(struct wbpf_kernel_ctx *ctx)
{
	return ctx->block_dim[0] * ctx->block_dim[1] * ctx->block_dim[2];
}

static __always_inline __u64 *word_of(__u32 slot, __u64 block)
{
	__u32 key = slot * BLOCKS + (__u32)block;

	if (block >= timed_blocks)
		return 0;
	return bpf_map_lookup_elem(&running, &key);
}

static __always_inline __u32 *alive_of(__u32 slot, __u32 sm)
{
	__u32 key = slot * SMS + (sm & (SMS - 1));
	struct alive *found = bpf_map_lookup_elem(&alive, &key);

	return found ? &found->blocks : 0;
}

/* The number of a kernel's histogram, from 1 on, 0 if there is none left. Asked for by few, who may come at once and then find the same one. */
static __always_inline __u32 histogram_of(__u32 kernel)
{
	__u32 key, there, *own;

	for (int i = 0; i < TRIES; i++) {
		key = (kernel + i) % HISTOGRAMS;
		own = bpf_map_lookup_elem(&histograms, &key);
		if (!own)
			return 0;
		there = *(volatile __u32 *)own;
		/* Free, or its own already. */
		if (there && there != kernel + 1)
			continue;
		there = __sync_val_compare_and_swap(own, there, kernel + 1);
		if (!there || there == kernel + 1)
			return key + 1;
	}
	return 0;
}

/* A launch's place is its own from when its block 0 begins. */
static __always_inline void recorded(struct wbpf_kernel_ctx *ctx, __u32 grid)
{
	__u32 place = grid & (timed_launches - 1), only = 0, blocks = blocks_of(ctx);
	struct launch *l = bpf_map_lookup_elem(&launches, &place);
	struct losses *loss;
	__u64 there;

	if (!l)
		return;
	there = __sync_val_compare_and_swap(&l->grid, 0, grid);
	if (!there) {
		l->kernel = ctx->kernel_id;
		l->blocks = blocks;
		l->timed = blocks < timed_blocks ? blocks : timed_blocks;
		l->threads = threads_of(ctx);
		l->came = bpf_ktime_get_ns();
		l->clock = bpf_gpu_globaltimer();
	} else if (there != grid) {
		loss = bpf_map_lookup_elem(&lost, &only);
		if (loss)
			__sync_fetch_and_add(&loss->unrecorded, 1);
	}
}

SEC("gpu/entry/*")
int begins(struct wbpf_kernel_ctx *ctx)
{
	__u32 kernel = ctx->kernel_id, grid = ctx->grid_id + 1, slot, *here;
	__u64 now, *word, *entered;

	if (!bpf_gpu_warp_leader())
		return 0;
	entered = bpf_map_lookup_elem(&threads, &kernel);
	if (entered)
		*entered += bpf_gpu_warp_lanes();
	/* Of a block its first thread counts; its warp may come in parts. It looks at nothing but in block 0, so that it waits for nothing. */
	if (ctx->warp || ctx->lane)
		return 0;
	slot = grid & (timed_at_once - 1);
	word = word_of(slot, bpf_gpu_block_id());
	if (!word)
		return 0;
	here = alive_of(slot, bpf_gpu_sm_id());
	if (here)
		__sync_fetch_and_add(here, 1);
	/* What the program took is no part of the block's time. */
	now = bpf_gpu_globaltimer();
	__sync_fetch_and_add(word, (now << LOW_BITS | 1 << LEFT_BITS) - threads_of(ctx));
	if (!bpf_gpu_block_id()) {
		recorded(ctx, grid);
		__sync_fetch_and_add(word, (bpf_gpu_globaltimer() - now) << LOW_BITS);
	}
	return 0;
}

/* A warp that is not its block's last one makes one trip to memory. Additions of which the sum is looked at are written in two steps, which become one that, unlike
 * the built-in ones, orders nothing: to wait until all that the kernel has stored is there would be most of what this costs. */
SEC("gpu/exit/*")
int ends(struct wbpf_kernel_ctx *ctx)
{
	__u64 now = bpf_gpu_globaltimer(), begin, end, last, seen, ns, owner, *word, *bucket;
	__u32 grid = ctx->grid_id + 1, slot = grid & (timed_at_once - 1), place = grid & (timed_launches - 1), sm, only = 0, key, begun, at_once, *here;
	struct peaks *peak;
	struct losses *loss;
	struct part *part;

	if (!bpf_gpu_warp_leader())
		return 0;
	word = word_of(slot, bpf_gpu_block_id());
	if (!word)
		return 0;
	seen = *word;
	seen += bpf_gpu_warp_lanes();
	*word = seen;
	if (seen & ((1 << LEFT_BITS) - 1))
		return 0;

	/* The block's last one. Of launches that met in the word, one comes here, when all of their blocks have ended. */
	__sync_fetch_and_sub(word, seen);
	sm = bpf_gpu_sm_id();
	here = alive_of(slot, sm);
	key = sm % PARTS * LAUNCHES + place;
	part = bpf_map_lookup_elem(&parts, &key);
	if (!here || !part)
		return 0;
	at_once = *(volatile __u32 *)here;
	owner = *(volatile __u64 *)&part->owner;
	last = *(volatile __u64 *)&part->last;
	begun = seen >> LEFT_BITS & ((1 << BEGUN_BITS) - 1);
	/* Blocks that met may have run elsewhere: then there are as many too few here as there are too many there. */
	__sync_fetch_and_sub(here, begun);
	if (begun != 1) {
		loss = bpf_map_lookup_elem(&lost, &only);
		if (loss && begun)
			__sync_fetch_and_add(&loss->met, begun - 1);
		return 0;
	}
	seen >>= LOW_BITS;
	/* A warp that left before the first one began may be the last to count: what it has read of the clock lies before the begin then. */
	if ((__s64)((now - seen) << LOW_BITS) < 0)
		now = bpf_gpu_globaltimer();
	ns = (now - seen) << LOW_BITS >> LOW_BITS;
	begin = (now - ns) << (32 - STEP_BITS) >> 32;
	end = now << (32 - STEP_BITS) >> 32;
	if (!owner) {
		seen = (__u64)grid << HISTOGRAM_BITS | histogram_of(ctx->kernel_id);
		owner = __sync_val_compare_and_swap(&part->owner, 0, seen);
		if (!owner) {
			owner = seen;
			part->first = begin << 32 | end;
		}
	}
	/* A launch before it has the place, and this one was counted when it began. */
	if (owner >> HISTOGRAM_BITS != grid)
		return 0;
	__sync_fetch_and_add(&part->done, ns << ENDED_BITS | 1);
	if ((__s32)(begin - (last >> 32)) < 0 && last)
		begin = last >> 32;
	part->last = begin << 32 | end;
	peak = bpf_map_lookup_elem(&peaks, &place);
	if (peak && at_once - 1 < 32)
		__sync_fetch_and_or(&peak->of[sm & (SMS - 1)], 1U << (at_once - 1));
	owner &= (1 << HISTOGRAM_BITS) - 1;
	if (!owner) {
		loss = bpf_map_lookup_elem(&lost, &only);
		if (loss)
			__sync_fetch_and_add(&loss->unsorted, 1);
		return 0;
	}
	key = (sm % SPREAD * HISTOGRAMS + (__u32)owner - 1) * BUCKETS;
	for (; ns > 15 && key % BUCKETS < BUCKETS - 16; ns >>= 1)
		key += 8;
	key += ns & 15;
	bucket = bpf_map_lookup_elem(&times, &key);
	if (bucket)
		__sync_fetch_and_add(bucket, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

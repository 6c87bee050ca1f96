// SPDX-License-Identifier: MIT OR Apache-2.0
// Maps that lanes use together where they can, for kernels of which there is only machine code: there no lane waits for another. What the hashes
// count is in `counts`, too, by itself: key = kernel_id * 8 + 0 for threads that begin (or loads), 1 for those that end, 2 for updates that came
// to nothing, 3 for records, 4 and 5 for values that were pushed on the stack and taken from it, 6 for bytes that were read at loads, 7 for
// pushes and pops that came to nothing.
#ifndef MACHINE_MAPS_H
#define MACHINE_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 128);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

#define HASH(kind, name, entries)                  \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_##kind); \
		__uint(max_entries, entries);      \
		__type(key, __u32);                \
		__type(value, __u64);              \
	} name SEC(".maps")

/* Each by kernel_id * 64 + which * 32 + some of the block's bits. */
HASH(HASH, plain, 2048);
HASH(LRU_HASH, lru, 8192);
HASH(PERCPU_HASH, percpu, 2048);

struct wide {
	__u64 count, kernel, more[2];
};

/* Too large for slots of 16 bytes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2048);
	__type(key, __u32);
	__type(value, struct wide);
} wide SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
	__type(value, __u64);
} records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 4096);
	__type(value, __u32);
} stack SEC(".maps");

static __always_inline void note(__u64 kernel, __u32 what, __u64 by)
{
	__u32 key = (__u32)kernel * 8 + what;
	__u64 *n = bpf_map_lookup_elem(&counts, &key);

	if (n)
		*n += by;
}

static __always_inline void add(void *map, __u64 kernel, __u32 key)
{
	__u64 zero = 0, *n;

	bpf_map_update_elem(map, &key, &zero, BPF_NOEXIST);
	n = bpf_map_lookup_elem(map, &key);
	if (n)
		__sync_fetch_and_add(n, 1);
	else
		note(kernel, 2, 1);
}

/* One more, in every hash. */
static __always_inline void count(__u64 kernel, __u32 block, __u32 which)
{
	__u32 key = (__u32)kernel * 64 + which * 32 + (block & 31);
	struct wide nothing = { .kernel = kernel }, *n;

	note(kernel, which, 1);
	add(&plain, kernel, key);
	add(&lru, kernel, key);
	add(&percpu, kernel, key);
	bpf_map_update_elem(&wide, &key, &nothing, BPF_NOEXIST);
	n = bpf_map_lookup_elem(&wide, &key);
	if (n)
		__sync_fetch_and_add(&n->count, 1);
	else
		note(kernel, 2, 1);
}

static __always_inline void push(__u64 kernel, __u32 block)
{
	note(kernel, bpf_map_push_elem(&stack, &block, BPF_ANY) == 0 ? 4 : 7, 1);
}

static __always_inline void pop(__u64 kernel)
{
	__u32 block;

	note(kernel, bpf_map_pop_elem(&stack, &block) == 0 ? 5 : 7, 1);
}

static __always_inline void record(__u64 kernel, __u32 block)
{
	__u64 record = kernel << 32 | block;

	if (bpf_ringbuf_output(&records, &record, sizeof(record), 0) == 0)
		note(kernel, 3, 1);
}

#endif

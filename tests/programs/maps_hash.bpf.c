// SPDX-License-Identifier: MIT OR Apache-2.0
// Every kind of hash under all lanes of all warps: counts by key, values that are overwritten as a whole, keys that come
// and go, and more keys than fit.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

#define KEYS 1000
#define ENOENT 2
#define E2BIG 7
#define EBUSY 16
#define EEXIST 17

#define COUNTS(name, number)                                                                                           \
	struct {                                                                                                       \
		__uint(type, number);                                                                                  \
		__uint(max_entries, 8192);                                                                             \
		__type(key, __u32);                                                                                    \
		__type(value, __u64);                                                                                  \
	} name SEC(".maps")

COUNTS(hash_counts, BPF_MAP_TYPE_HASH);
COUNTS(gpu_counts, 1501);
COUNTS(percpu_counts, BPF_MAP_TYPE_PERCPU_HASH);
COUNTS(lru_counts, BPF_MAP_TYPE_LRU_HASH);
COUNTS(lru_percpu_counts, BPF_MAP_TYPE_LRU_PERCPU_HASH);

struct pair {
	__u64 key[2];
};

struct triple {
	__u64 w[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct pair);
	__type(value, struct triple);
} triples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, __u64);
} owned SEC(".maps");

/* As few slots as a hash can have, and fewer keys. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, __u64);
	__type(value, __u64);
} shared SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 50000);
	__type(key, struct pair);
	__type(value, struct triple);
} stream SEC(".maps");

enum {
	NO_ROOM,
	OVERWRITTEN,
	OVERWRITE_BUSY,
	OVERWRITE_WRONG,
	TORN,
	OWNED,
	OWNED_WRONG,
	STREAMED,
	STREAM_BUSY,
	STREAM_WRONG,
	DROPPED,
	SEEN,
	STREAM_OTHER,
	CAME,
	WENT,
	CAME_BUSY,
	CAME_WRONG,
	RESULTS,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RESULTS);
	__type(key, __u32);
	__type(value, __u64);
} results SEC(".maps");

static __always_inline void note(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&results, &what);

	/* Not as the counts are added to: clang would make one instruction of both. */
	if (n)
		__sync_fetch_and_add(n, 1);
}

static __always_inline __u64 thread(struct wbpf_kernel_ctx *ctx)
{
	return (__u64)ctx->block_idx[0] * ctx->block_dim[0] + ctx->thread_idx[0];
}

#define COUNT(name, map)                                                                                               \
	SEC("gpu/entry/*")                                                                                             \
	int name(struct wbpf_kernel_ctx *ctx)                                                                          \
	{                                                                                                              \
		__u32 key = thread(ctx) % KEYS;                                                                        \
		__u64 *n = bpf_map_lookup_elem(&map, &key);                                                            \
                                                                                                                       \
		if (!n) {                                                                                              \
			__u64 zero = 0;                                                                                \
                                                                                                                       \
			bpf_map_update_elem(&map, &key, &zero, BPF_NOEXIST);                                           \
			n = bpf_map_lookup_elem(&map, &key);                                                           \
		}                                                                                                      \
		if (n)                                                                                                 \
			*n += 1;                                                                                       \
		else                                                                                                   \
			note(NO_ROOM);                                                                                 \
		return 0;                                                                                              \
	}

COUNT(count_hash, hash_counts)
COUNT(count_gpu, gpu_counts)
COUNT(count_percpu, percpu_counts)
COUNT(count_lru, lru_counts)
COUNT(count_lru_percpu, lru_percpu_counts)

/* A value of several words is never seen half written. Nodes for it run out, and that is said. */
SEC("gpu/entry/*")
int overwrite(struct wbpf_kernel_ctx *ctx)
{
	__u64 me = thread(ctx);
	struct pair key = { { me % 64, me % 64 + 1 } };
	struct triple value = { { me, me, me } };
	struct triple *found;
	long error = bpf_map_update_elem(&triples, &key, &value, BPF_ANY);

	note(error == 0 ? OVERWRITTEN : error == -EBUSY ? OVERWRITE_BUSY : OVERWRITE_WRONG);
	found = bpf_map_lookup_elem(&triples, &key);
	if (!found)
		return 0;
	value = *found;
	if (value.w[0] != value.w[1] || value.w[0] != value.w[2] || value.w[0] % 64 != me % 64)
		note(TORN);
	return 0;
}

/* A key that only this thread has. What was deleted keeps its slot, which the key finds again in the next launch. */
SEC("gpu/entry/*")
int own(struct wbpf_kernel_ctx *ctx)
{
	__u64 me = thread(ctx), *found;
	long error;

	if (me >= 4096)
		return 0;
	if (bpf_map_update_elem(&owned, &me, &me, BPF_EXIST) != -ENOENT)
		note(OWNED_WRONG);
	error = bpf_map_update_elem(&owned, &me, &me, BPF_NOEXIST);
	found = bpf_map_lookup_elem(&owned, &me);
	if (error == 0 && found && *found == me && bpf_map_delete_elem(&owned, &me) == 0 &&
		 !bpf_map_lookup_elem(&owned, &me))
		note(OWNED);
	else
		note(OWNED_WRONG);
	return 0;
}

/* Few keys that all threads put in and take out: what came and did not go is there, whatever happened in between. */
SEC("gpu/entry/*")
int come_and_go(struct wbpf_kernel_ctx *ctx)
{
	__u64 me = thread(ctx), key = me % 8;
	long error = bpf_map_update_elem(&shared, &key, &me, BPF_NOEXIST);

	/* A key that was just deleted is still counted for a moment, so the map may seem full. */
	note(error == 0 ? CAME :
	     error == -EBUSY || error == -E2BIG ? CAME_BUSY :
	     error == -EEXIST ? RESULTS : CAME_WRONG);
	if (me % 3 == 0)
		return 0;
	error = bpf_map_delete_elem(&shared, &key);
	note(error == 0 ? WENT : error == -ENOENT ? RESULTS : CAME_WRONG);
	return 0;
}

/* More keys than fit, for ever: each is there after it was put in, unless others have pushed it out. */
SEC("gpu/entry/*")
int run_through(struct wbpf_kernel_ctx *ctx)
{
	__u64 me = thread(ctx);
	struct pair key = { { me, ~me } };
	struct triple value = { { me, me + 1, me + 2 } };
	struct triple *found;
	long error = bpf_map_update_elem(&stream, &key, &value, BPF_ANY);

	note(error == 0 ? STREAMED : error == -EBUSY ? STREAM_BUSY : STREAM_WRONG);
	found = bpf_map_lookup_elem(&stream, &key);
	if (!found)
		note(DROPPED);
	else if (found->w[0] == me)
		note(SEEN);
	else
		/* It was pushed out between the lookup and here: its node is another key's now. */
		note(STREAM_OTHER);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

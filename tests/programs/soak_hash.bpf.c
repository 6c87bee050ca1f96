// SPDX-License-Identifier: MIT OR Apache-2.0
// Every kind of operation on every kind of hash: under keys that all threads share, and under one that each has for itself, of which it
// knows what each operation must say.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

#define HOT 1000
#define ENOENT 2
#define EEXIST 17
/* Operations of a thread on its own key. */
#define STEPS 9

#define TABLE(name, number)                                                                                            \
	struct {                                                                                                       \
		__uint(type, number);                                                                                  \
		__uint(max_entries, 1 << 17);                                                                          \
		__type(key, __u32);                                                                                    \
		__type(value, __u64);                                                                                  \
	} name SEC(".maps")

TABLE(hash, BPF_MAP_TYPE_HASH);
TABLE(gpu_hash, 1501);
TABLE(percpu_hash, BPF_MAP_TYPE_PERCPU_HASH);
TABLE(lru_hash, BPF_MAP_TYPE_LRU_HASH);
TABLE(lru_percpu_hash, BPF_MAP_TYPE_LRU_PERCPU_HASH);

/* For each table, from 16 times its number on: threads without a shared key, threads that were told something wrong at a step, and
 * at STEPS + 1 those that were told what they must be. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 5 * 16);
	__type(key, __u32);
	__type(value, __u64);
} results SEC(".maps");

static __always_inline void note(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&results, &what);

	/* Not as the shared keys are counted: clang would make one instruction of both. */
	if (n)
		__sync_fetch_and_add(n, 1);
}

#define STEP(right)                                                                                                    \
	step++;                                                                                                        \
	if (!(right))                                                                                                  \
		goto out

#define SOAK(name, map, number)                                                                                        \
	SEC("gpu/entry/*")                                                                                             \
	int name(struct wbpf_kernel_ctx *ctx)                                                                          \
	{                                                                                                              \
		__u32 me = ctx->block_idx[0] * ctx->block_dim[0] + ctx->thread_idx[0];                                 \
		__u32 hot = me % HOT, own = HOT + me, step = 0;                                                        \
		__u64 value = me * 3ULL + 1, next = value + 1, zero = 0, *n;                                           \
                                                                                                                       \
		n = bpf_map_lookup_elem(&map, &hot);                                                                   \
		if (!n) {                                                                                              \
			bpf_map_update_elem(&map, &hot, &zero, BPF_NOEXIST);                                           \
			n = bpf_map_lookup_elem(&map, &hot);                                                           \
		}                                                                                                      \
		if (n)                                                                                                 \
			*n += 1;                                                                                       \
		else                                                                                                   \
			note(16 * number);                                                                             \
		STEP(bpf_map_update_elem(&map, &own, &value, BPF_EXIST) == -ENOENT);                                   \
		STEP(bpf_map_update_elem(&map, &own, &value, BPF_NOEXIST) == 0);                                       \
		STEP((n = bpf_map_lookup_elem(&map, &own)) && *(volatile __u64 *)n == value);                          \
		STEP(bpf_map_update_elem(&map, &own, &value, BPF_NOEXIST) == -EEXIST);                                 \
		STEP(bpf_map_update_elem(&map, &own, &next, BPF_EXIST) == 0);                                          \
		STEP((n = bpf_map_lookup_elem(&map, &own)) && *(volatile __u64 *)n == next);                           \
		STEP(bpf_map_delete_elem(&map, &own) == 0);                                                            \
		STEP(!bpf_map_lookup_elem(&map, &own));                                                                \
		STEP(bpf_map_delete_elem(&map, &own) == -ENOENT);                                                      \
		step++;                                                                                                \
	out:                                                                                                           \
		note(16 * number + step);                                                                              \
		return 0;                                                                                              \
	}

SOAK(soak_hash, hash, 0)
SOAK(soak_gpu_hash, gpu_hash, 1)
SOAK(soak_percpu_hash, percpu_hash, 2)
SOAK(soak_lru_hash, lru_hash, 3)
SOAK(soak_lru_percpu_hash, lru_percpu_hash, 4)

char LICENSE[] SEC("license") = "Dual MIT/GPL";

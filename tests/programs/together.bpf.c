// SPDX-License-Identifier: MIT OR Apache-2.0
// Runs at each load of a kernel that does not end by itself. `share` changes the same keys and the same queue as the host does;
// `change` changes maps of every kind all the time, with values of which a copy can say whether they ever were there.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

#define ENOENT 2
#define E2BIG 7
#define EBUSY 16
#define EEXIST 17

#define MAP(name, number, entries, key_type, value_type)                                                               \
	struct {                                                                                                       \
		__uint(type, number);                                                                                  \
		__uint(max_entries, entries);                                                                          \
		__type(key, key_type);                                                                                 \
		__type(value, value_type);                                                                             \
	} name SEC(".maps")

#define LIST(name, number, entries)                                                                                    \
	struct {                                                                                                       \
		__uint(type, number);                                                                                  \
		__uint(max_entries, entries);                                                                          \
		__type(value, __u64);                                                                                  \
	} name SEC(".maps")

struct pair {
	__u64 w[2];
};

struct triple {
	__u64 w[3];
};

/* [0]: end the kernel, [1]: the host has put in what stays */
MAP(control, BPF_MAP_TYPE_ARRAY, 2, __u32, __u32);
/* Turns of each thread. */
MAP(turns, BPF_MAP_TYPE_PERGPUTD_ARRAY, 1, __u32, __u64);

#define KEYS 8
MAP(common, BPF_MAP_TYPE_HASH, 64, __u32, __u64);
LIST(line, BPF_MAP_TYPE_QUEUE, 256);

enum { CAME, WENT, SAW_HOST, PUSHED, PUSHED_SUM, POPPED, POPPED_SUM, POPPED_OF_HOST, STRANGE, DID };
MAP(did, BPF_MAP_TYPE_ARRAY, DID, __u32, __u64);

#define STEADY 64
MAP(small, BPF_MAP_TYPE_HASH, 256, __u32, __u64);
MAP(large, BPF_MAP_TYPE_HASH, 4096, __u32, struct triple);
MAP(words, BPF_MAP_TYPE_ARRAY, 4, __u32, struct pair);
MAP(gpu_words, BPF_MAP_TYPE_GPU_ARRAY, 4, __u32, struct pair);
MAP(sum, BPF_MAP_TYPE_ARRAY, 1, __u32, __u64);
MAP(percpu, BPF_MAP_TYPE_PERCPU_ARRAY, 1, __u32, __u64);
MAP(percpu_hash, BPF_MAP_TYPE_PERCPU_HASH, 64, __u32, __u64);
MAP(host_threads, BPF_MAP_TYPE_PERGPUTD_ARRAY_HOST, 1, __u32, __u64);
MAP(lru, BPF_MAP_TYPE_LRU_HASH, 256, __u32, __u64);
LIST(queue, BPF_MAP_TYPE_QUEUE, 256);
LIST(kept, BPF_MAP_TYPE_QUEUE, 64);
LIST(stack, BPF_MAP_TYPE_STACK, 256);

struct {
	__uint(type, BPF_MAP_TYPE_BLOOM_FILTER);
	__uint(max_entries, 4096);
	__type(value, __u64);
} filter SEC(".maps");

static __always_inline void add(__u32 what, __u64 n)
{
	__u64 *v = bpf_map_lookup_elem(&did, &what);

	if (v)
		__sync_fetch_and_add(v, n);
}

static __always_inline __u32 thread(struct wbpf_mem_ctx *ctx)
{
	return ctx->block_idx[0] * ctx->block_dim[0] + ctx->thread_idx[0];
}

SEC("gpu/mem/*spin*|kind=load,size=4")
int share(struct wbpf_mem_ctx *ctx)
{
	__u32 zero = 0, key;
	__u32 *flag = bpf_map_lookup_elem(&control, &zero);
	__u64 *turn, *found, value, me = thread(ctx);
	long error;

	if (flag && *(volatile __u32 *)flag)
		bpf_gpu_exit();
	turn = bpf_map_lookup_elem(&turns, &zero);
	if (!turn)
		return 0;
	*turn += 1;

	key = (me + *turn) % KEYS;
	value = me + 1;
	error = bpf_map_update_elem(&common, &key, &value, BPF_NOEXIST);
	if (!error)
		add(CAME, 1);
	else if (error != -EEXIST && error != -EBUSY && error != -E2BIG)
		add(STRANGE, 1);
	found = bpf_map_lookup_elem(&common, &key);
	if (found && *(volatile __u64 *)found >> 32)
		add(SAW_HOST, 1);
	if ((me + *turn) % 3) {
		error = bpf_map_delete_elem(&common, &key);
		if (!error)
			add(WENT, 1);
		else if (error != -ENOENT && error != -EBUSY)
			add(STRANGE, 1);
	}

	value = *turn << 16 | (me + 1);
	error = bpf_map_push_elem(&line, &value, BPF_ANY);
	if (!error) {
		add(PUSHED, 1);
		add(PUSHED_SUM, value);
	} else if (error != -E2BIG && error != -EBUSY) {
		add(STRANGE, 1);
	}
	error = bpf_map_pop_elem(&line, &value);
	if (!error) {
		add(POPPED, 1);
		add(POPPED_SUM, value);
		add(POPPED_OF_HOST, value >> 63);
	} else if (error != -ENOENT && error != -EBUSY) {
		add(STRANGE, 1);
	}
	return 0;
}

static __always_inline void count(void *map, __u32 key)
{
	__u64 *n = bpf_map_lookup_elem(map, &key);

	if (n)
		__sync_fetch_and_add(n, 1);
}

SEC("gpu/mem/*spin*|kind=load,size=4")
int change(struct wbpf_mem_ctx *ctx)
{
	__u32 zero = 0, one = 1, key, me = thread(ctx);
	__u32 *ready = bpf_map_lookup_elem(&control, &one);
	__u64 *turn = bpf_map_lookup_elem(&turns, &zero), value;
	struct triple triple;
	struct pair pair;

	if (!ready || !*(volatile __u32 *)ready || !turn)
		return 0;
	/* Keys that stay, whose values change; and keys that come and go among some that stay as they are. */
	key = (me + *turn) % STEADY;
	value = *turn * STEADY + key;
	bpf_map_update_elem(&small, &key, &value, BPF_EXIST);
	key = STEADY + me % 512;
	triple.w[0] = triple.w[1] = triple.w[2] = *turn;
	bpf_map_update_elem(&large, &key, &triple, BPF_ANY);
	bpf_map_delete_elem(&large, &key);
	/* Each word by itself is one that somebody wrote. */
	key = me % 4;
	pair.w[0] = *turn * 7 + 3;
	pair.w[1] = (__u64)me * 7 + 3;
	bpf_map_update_elem(&words, &key, &pair, BPF_ANY);
	bpf_map_update_elem(&gpu_words, &key, &pair, BPF_ANY);
	/* What only grows. */
	count(&sum, 0);
	count(&percpu, 0);
	count(&percpu_hash, me % 8);
	count(&host_threads, 0);
	/* Four times as many keys as fit. */
	key = (me * 37 + *turn) % 1024;
	value = key * 11 + 5;
	bpf_map_update_elem(&lru, &key, &value, BPF_ANY);
	/* Who pushes pops, so what the host has put below stays. */
	value = *turn * 13 + 4;
	if (!bpf_map_push_elem(&queue, &value, BPF_ANY))
		bpf_map_pop_elem(&queue, &value);
	value = *turn * 13 + 4;
	if (!bpf_map_push_elem(&stack, &value, BPF_ANY))
		bpf_map_pop_elem(&stack, &value);
	value = *turn * 13 + 4;
	bpf_map_push_elem(&kept, &value, BPF_ANY);
	value = me * 1000 + *turn % 100;
	bpf_map_push_elem(&filter, &value, BPF_ANY);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// A map of each type that keeps values by key, in a row, as bits, or other maps: all of them are used by each thread.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

static __u64 (*bpf_get_block_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)503;
static __u64 (*bpf_get_block_dim)(__u64 *x, __u64 *y, __u64 *z) = (void *)504;
static __u64 (*bpf_get_thread_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)505;

#define KEYED(kind, name)                          \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_##kind); \
		__uint(max_entries, 1024);         \
		__type(key, __u32);                \
		__type(value, __u64);              \
	} name SEC(".maps")

KEYED(HASH, plain);
KEYED(LRU_HASH, lru);
KEYED(PERCPU_HASH, percpu);
KEYED(LRU_PERCPU_HASH, lru_percpu);

#define ROW(kind, name, entries)                   \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_##kind); \
		__uint(max_entries, entries);      \
		__type(value, __u32);              \
	} name SEC(".maps")

ROW(QUEUE, queue, 64);
ROW(STACK, stack, 64);
ROW(BLOOM_FILTER, bloom, 4096);

struct counts {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} first SEC(".maps"), second SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 3);
	__type(key, __u32);
	__array(values, struct counts);
} by_index SEC(".maps") = {
	.values = { [0] = &first, [1] = &second },
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 8);
	__type(key, __u32);
	__array(values, struct counts);
} by_key SEC(".maps");

// What the threads do: 0 is to fill, 1 to take.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} phase SEC(".maps");

// Of the threads that took: the sum of the queue's values, of the stack's, threads that found the tool's value in the filter, and
// how often each kind of map of maps had nothing.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 5);
	__type(key, __u32);
	__type(value, __u32);
} found SEC(".maps");

static __always_inline void add(void *map, __u32 key, __u64 more)
{
	__u64 *value = bpf_map_lookup_elem(map, &key);

	if (value)
		__sync_fetch_and_add(value, more);
}

static __always_inline void note(__u32 key, __u32 more)
{
	__u32 *value = bpf_map_lookup_elem(&found, &key);

	if (value)
		__sync_fetch_and_add(value, more);
}

static __always_inline void count(void *map, __u32 key)
{
	__u64 zero = 0;

	bpf_map_update_elem(map, &key, &zero, BPF_NOEXIST);
	add(map, key, 1);
}

static __always_inline void inside(void *outer, __u32 key, __u32 index, __u32 nothing)
{
	void *map = bpf_map_lookup_elem(outer, &key);

	if (map)
		add(map, index, 1);
	else
		note(nothing, 1);
}

SEC("kprobe/_Z4stepPj")
int cuda__step(void)
{
	__u64 block[3], dim[3], thread[3];
	__u32 lane, value = 0, zero = 0, *now;

	bpf_get_block_idx(&block[0], &block[1], &block[2]);
	bpf_get_block_dim(&dim[0], &dim[1], &dim[2]);
	bpf_get_thread_idx(&thread[0], &thread[1], &thread[2]);
	lane = block[0] * dim[0] + thread[0];
	count(&plain, lane & 15);
	count(&lru, lane & 15);
	count(&percpu, lane & 15);
	count(&lru_percpu, lane & 15);
	inside(&by_index, lane & 1, 0, 3);
	inside(&by_key, 7 + (lane & 1), 1, 4);
	now = bpf_map_lookup_elem(&phase, &zero);
	if (!now)
		return 0;
	if (*now == 0) {
		bpf_map_push_elem(&bloom, &lane, BPF_ANY);
		if (lane < 16) {
			value = lane + 1;
			bpf_map_push_elem(&queue, &value, BPF_ANY);
			bpf_map_push_elem(&stack, &value, BPF_ANY);
		}
		return 0;
	}
	if (lane < 2) {
		if (bpf_map_pop_elem(&queue, &value) == 0)
			note(0, value);
		if (bpf_map_pop_elem(&stack, &value) == 0)
			note(1, value);
	}
	value = 1000001;
	if (bpf_map_peek_elem(&bloom, &value) == 0)
		note(2, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

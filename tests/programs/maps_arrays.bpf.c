// SPDX-License-Identifier: MIT OR Apache-2.0
// Events of both kinds, arrays of every kind, and maps found in maps of maps.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

/* A hundred million events of each kind are to come, so writers wait for a tool that is slower than they are. */
#define WAIT_US 1000000

struct event {
	__u64 thread;
	__u32 sm;
	__u32 number;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(int));
	__uint(value_size, sizeof(int));
	__uint(map_extra, WAIT_US);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_GPU_RINGBUF);
	__uint(max_entries, 16);
	__uint(map_extra, WAIT_US);
	__type(key, __u32);
	__type(value, struct event);
} gpu_events SEC(".maps");

#define COUNTER(name, kind, entries)         \
	struct {                             \
		__uint(type, kind);          \
		__uint(max_entries, entries);\
		__type(key, __u32);          \
		__type(value, __u64);        \
	} name SEC(".maps")

/* Counts, and behind them values that are written and read again. */
#define COUNTS 16
#define VALUES 1024
#define ENTRIES (COUNTS + VALUES)

COUNTER(array, BPF_MAP_TYPE_ARRAY, ENTRIES);
COUNTER(gpu_array, BPF_MAP_TYPE_GPU_ARRAY, ENTRIES);
COUNTER(kernel_array, BPF_MAP_TYPE_GPU_KERNEL_SHARED_ARRAY, ENTRIES);
COUNTER(host_array, BPF_MAP_TYPE_GPU_ARRAY_HOST, ENTRIES);
COUNTER(percpu_array, BPF_MAP_TYPE_PERCPU_ARRAY, COUNTS);
COUNTER(threads, BPF_MAP_TYPE_PERGPUTD_ARRAY, 1);
COUNTER(host_threads, BPF_MAP_TYPE_PERGPUTD_ARRAY_HOST, 1);

struct inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 3);
	__type(key, __u32);
	__type(value, __u64);
} even SEC(".maps"), odd SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 4);
	__type(key, __u32);
	__array(values, struct inner);
} by_index SEC(".maps") = {
	.values = { [0] = &even, [1] = &odd },
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 8);
	__type(key, __u32);
	__array(values, struct inner);
} by_key SEC(".maps") = {
	.values = { [2] = &even, [5] = &odd },
};

/* 0: events refused, 1: no map found, 2: an update was refused, or what was written is not there */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 3);
	__type(key, __u32);
	__type(value, __u64);
} problems SEC(".maps");

static __always_inline void add(void *map, __u32 key, __u64 how_much)
{
	__u64 *n = bpf_map_lookup_elem(map, &key);

	if (n)
		__sync_fetch_and_add(n, how_much);
}

SEC("gpu/entry/*")
int arrays(struct wbpf_kernel_ctx *ctx)
{
	struct event event = {
		.thread = (__u64)ctx->block_idx[0] * ctx->block_dim[0] + ctx->thread_idx[0],
		.sm = bpf_get_smp_processor_id(),
		.number = 1,
	};
	__u32 index = event.thread & 1, key = index ? 5 : 2, two = 2, beyond = ENTRIES;
	__u64 refused = 0, missing = 0, failed = 0;
	void *map;

	if (bpf_perf_event_output(ctx, &events, BPF_F_CURRENT_CPU, &event, sizeof(event)))
		refused++;
	event.number = 2;
	if (bpf_perf_event_output(ctx, &gpu_events, 0, &event, sizeof(event)))
		refused++;

	add(&gpu_array, 0, 1);
	add(&kernel_array, 0, 1);
	add(&host_array, 0, 1);
	add(&host_threads, 0, 1);
	/* Outside: nothing may happen. */
	add(&gpu_array, beyond, 1);
	add(&host_array, beyond, 1);

	map = bpf_map_lookup_elem(&by_index, &index);
	if (map)
		add(map, 0, 1);
	else
		missing++;
	map = bpf_map_lookup_elem(&by_key, &key);
	if (map) {
		add(map, 1, 1);
		if (bpf_map_update_elem(map, &two, &event.thread, BPF_ANY))
			failed++;
	} else {
		missing++;
	}
	index += 2;
	map = bpf_map_lookup_elem(&by_index, &index);
	if (map)
		missing++;
	add(&problems, 0, refused);
	add(&problems, 1, missing);
	add(&problems, 2, failed);
	return 0;
}

/* Writes a value that all who write there write, and reads it again. */
static __always_inline __u64 put(void *map, __u32 thread)
{
	__u32 key = COUNTS + thread % VALUES;
	__u64 value = thread % VALUES + 1, *found;

	if (bpf_map_update_elem(map, &key, &value, BPF_ANY))
		return 1;
	found = bpf_map_lookup_elem(map, &key);
	return !found || *(volatile __u64 *)found != value;
}

SEC("gpu/entry/*")
int values(struct wbpf_kernel_ctx *ctx)
{
	__u32 thread = ctx->block_idx[0] * ctx->block_dim[0] + ctx->thread_idx[0];
	__u64 wrong;

	add(&array, thread % COUNTS, 1);
	add(&percpu_array, thread % COUNTS, 1);
	add(&threads, 0, 1);
	wrong = put(&array, thread);
	wrong += put(&gpu_array, thread);
	wrong += put(&kernel_array, thread);
	wrong += put(&host_array, thread);
	add(&problems, 2, wrong);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

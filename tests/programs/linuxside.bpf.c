// SPDX-License-Identifier: MIT OR Apache-2.0
// A program of Linux and programs of the GPU that share maps of every kind that can be shared, each in every way.
#include "linux.h"

struct record {
	__u32 source;
	__u32 number;
};

/* Of Linux's programs only. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} calls SEC(".maps");

/* The same, of a type that no GPU has. */
struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 16);
	__uint(key_size, 4);
	__uint(value_size, 8 * 16);
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 4);
} samples SEC(".maps");

/* Of both, as `array`. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} hash SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} percpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} events SEC(".maps");

/* Linux writes, the GPU only reads. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} level SEC(".maps");

/* 0: the first level that a kernel saw, and one, 1: the last. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

__u64 together;

SEC("raw_tp/sys_enter")
int on_call(struct bpf_raw_tracepoint_args *ctx)
{
	struct record sample = {1, 0}, *record;

	if (!of_app() || ctx->args[1] != call)
		return 0;
	add(&calls, 7);
	add(&array, 0);
	add(&array, 2);
	add(&hash, 0);
	add(&hash, 2);
	add(&percpu, 0);
	add(&level, 5);
	__sync_fetch_and_add(&together, 1);
	bpf_get_stackid(ctx, &stacks, 0);
	bpf_perf_event_output(ctx, &samples, BPF_F_CURRENT_CPU, &sample, sizeof(sample));
	record = bpf_ringbuf_reserve(&events, sizeof(*record), 0);
	if (!record)
		return 0;
	record->source = 1;
	record->number = together;
	bpf_ringbuf_submit(record, 0);
	return 0;
}

SEC("gpu/entry/work*")
int count(void *ctx)
{
	struct record *record;

	add(&hash, 0);
	add(&hash, 1);
	add(&percpu, 0);
	__sync_fetch_and_add(&together, 1);
	record = bpf_ringbuf_reserve(&events, sizeof(*record), 0);
	if (!record)
		return 0;
	record->source = 2;
	record->number = 0;
	bpf_ringbuf_submit(record, 0);
	return 0;
}

SEC("gpu/entry.block/work*")
int look(void *ctx)
{
	__u32 key = 5, zero = 0, one = 1;
	__u64 *now = bpf_map_lookup_elem(&level, &key);
	__u64 *first = bpf_map_lookup_elem(&seen, &zero);
	__u64 *last = bpf_map_lookup_elem(&seen, &one);

	if (!first || !last)
		return 0;
	if (!*first)
		*first = (now ? *now : 0) + 1;
	if (now)
		*last = *now;
	return 0;
}

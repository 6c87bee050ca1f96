// SPDX-License-Identifier: MIT OR Apache-2.0
// Every thread pushes a number of its own to a queue and a stack, looks at the next and pops one of each, and asks a bloom filter.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1 << 16);
	__type(value, __u64);
} queue SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 1 << 16);
	__type(value, __u64);
} stack SEC(".maps");

/* Always full after the first pushes. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 7);
	__type(value, __u64);
} latest SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_BLOOM_FILTER);
	__uint(max_entries, 1024);
	__uint(map_extra, 3);
	__type(value, __u64);
} seen SEC(".maps");

enum {
	PUSHED, PUSHED_SUM, REFUSED, POPPED, POPPED_SUM, EMPTY, STRANGE, PEEKED,
	OF_STACK = 8,
	MISSING = 16, PUT, LATEST, LATEST_BUSY,
	COUNTS = 24,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline void add(__u32 what, __u64 how_much)
{
	__u64 *n = bpf_map_lookup_elem(&counts, &what);

	if (n)
		__sync_fetch_and_add(n, how_much);
}

static __always_inline void both_ways(void *list, __u32 first, __u64 number)
{
	__u64 value = number;
	long result = bpf_map_push_elem(list, &value, BPF_ANY);

	if (result == 0) {
		add(first + PUSHED, 1);
		add(first + PUSHED_SUM, number);
	} else if (result == -7 || result == -16) {
		add(first + REFUSED, 1);
	} else {
		add(first + STRANGE, 1);
	}
	result = bpf_map_peek_elem(list, &value);
	/* What is there was pushed; what is not is zero. */
	if (result == 0 ? value != 0 : value == 0 && (result == -2 || result == -16))
		add(first + PEEKED, 1);
	else
		add(first + STRANGE, 1);
	result = bpf_map_pop_elem(list, &value);
	if (result == 0) {
		add(first + POPPED, 1);
		add(first + POPPED_SUM, value);
	} else if (value == 0 && (result == -2 || result == -16)) {
		add(first + EMPTY, 1);
	} else {
		add(first + STRANGE, 1);
	}
}

SEC("gpu/entry/*")
int lists(struct wbpf_kernel_ctx *ctx)
{
	__u64 thread = (__u64)ctx->block_idx[0] * ctx->block_dim[0] + ctx->thread_idx[0];
	__u64 number = thread + 1, kind = thread % 1000;

	both_ways(&queue, 0, number);
	both_ways(&stack, OF_STACK, number);
	if (bpf_map_push_elem(&latest, &number, BPF_EXIST) == 0)
		add(LATEST, 1);
	else
		add(LATEST_BUSY, 1);
	bpf_map_push_elem(&seen, &kind, BPF_ANY);
	if (bpf_map_peek_elem(&seen, &kind))
		add(MISSING, 1);
	else
		add(PUT, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

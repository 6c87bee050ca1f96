// SPDX-License-Identifier: MIT OR Apache-2.0
// Counts in maps that are found in maps, at each load of a kernel that does not end by itself.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

/* By kind of the outer map: 0 an array, 1 a hash. */
struct counts {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} first SEC(".maps"), second SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 2);
	__type(key, __u32);
	__array(values, struct counts);
} by_index SEC(".maps") = {
	.values = { [0] = &first, [1] = &second },
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 4);
	__type(key, __u32);
	__array(values, struct counts);
} by_key SEC(".maps");

/* [0]: end the kernel */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} control SEC(".maps");

/* 0 and 1: nothing was found, by kind; 2: times in all */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 3);
	__type(key, __u32);
	__type(value, __u32);
} times SEC(".maps");

static __always_inline void note(__u32 key)
{
	__u32 *value = bpf_map_lookup_elem(&times, &key);

	if (value)
		__sync_fetch_and_add(value, 1);
}

static __always_inline void count(void *outer, __u32 key, __u32 kind)
{
	void *map = bpf_map_lookup_elem(outer, &key);
	__u64 *value;

	if (!map) {
		note(kind);
		return;
	}
	value = bpf_map_lookup_elem(map, &kind);
	if (value)
		__sync_fetch_and_add(value, 1);
}

SEC("gpu/mem/*spin*|kind=load,size=4")
int spinning(struct wbpf_mem_ctx *ctx)
{
	__u32 zero = 0, *end;

	note(2);
	count(&by_index, 0, 0);
	count(&by_key, 77, 1);
	end = bpf_map_lookup_elem(&control, &zero);
	if (end && *(volatile __u32 *)end)
		bpf_gpu_exit();
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

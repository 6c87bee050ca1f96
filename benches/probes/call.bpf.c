// SPDX-License-Identifier: MIT OR Apache-2.0
// What a call to the host costs: `warpbpf run --place table=host --set lanes=1 … -- vectoradd 1000000 100`. The first `lanes`
// threads of each launch look a key up and say how many nanoseconds that took.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

const volatile __u32 lanes = 1;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} table SEC(".maps");

enum { CALLS, NANOSECONDS, NOT_FOUND, RESULTS };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RESULTS);
	__type(key, __u32);
	__type(value, __u64);
} results SEC(".maps");

/* Calls by the base-2 logarithm of their nanoseconds. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 40);
	__type(key, __u32);
	__type(value, __u64);
} log2_ns SEC(".maps");

static __always_inline void add(void *map, __u32 key, __u64 n)
{
	__u64 *value = bpf_map_lookup_elem(map, &key);

	if (value)
		__sync_fetch_and_add(value, n);
}

SEC("gpu/entry/vectorAdd")
int call(struct wbpf_kernel_ctx *ctx)
{
	__u64 thread = (__u64)ctx->block_idx[0] * ctx->block_dim[0] + ctx->thread_idx[0];
	__u32 key = thread % 1024;

	if (thread >= lanes)
		return 0;
	__u64 start = bpf_gpu_globaltimer();
	__u64 *value = bpf_map_lookup_elem(&table, &key);
	__u64 took = bpf_gpu_globaltimer() - start;
	__u32 log = 0;

	if (!value) {
		__u64 one = 1;

		bpf_map_update_elem(&table, &key, &one, BPF_ANY);
		add(&results, NOT_FOUND, 1);
	}
	for (int bit = 32; bit; bit /= 2)
		if (took >> log >> bit)
			log += bit;
	add(&results, CALLS, 1);
	add(&results, NANOSECONDS, took);
	add(&log2_ns, log, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

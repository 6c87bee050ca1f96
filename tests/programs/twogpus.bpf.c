// SPDX-License-Identifier: MIT OR Apache-2.0
// Maps of every kind that is merged in a way of its own, for an application with two GPUs.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} blocks SEC(".maps");

/* What is not only added to: the largest block seen. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} grids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lanes SEC(".maps");

struct event {
	__u32 block;
	__u32 sm;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} events SEC(".maps");

/* Only the host puts in and takes out. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 2);
	__type(value, __u32);
} orders SEC(".maps");

/* A sum that does not begin with zero, and a variable that programs read. */
__u64 exits = 1000;
volatile const __u64 step = 1;

SEC("gpu/entry/fill*")
int entered(struct wbpf_kernel_ctx *ctx)
{
	__u32 zero = 0, block = ctx->block_idx[0];
	__u64 *n = bpf_map_lookup_elem(&threads, &zero), one = 1;

	if (n)
		*n += step;
	n = bpf_map_lookup_elem(&blocks, &block);
	if (!n) {
		__u64 none = 0;

		bpf_map_update_elem(&blocks, &block, &none, BPF_NOEXIST);
		n = bpf_map_lookup_elem(&blocks, &block);
	}
	if (n)
		__sync_fetch_and_add(n, one);
	return 0;
}

SEC("gpu/entry.warp/fill*")
int warp_entered(struct wbpf_kernel_ctx *ctx)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&lanes, &zero);
	__u32 m = ctx->active_mask;

	/* How the lanes of a warp arrive is up to the hardware; how many they are is not. */
	m = m - ((m >> 1) & 0x55555555);
	m = (m & 0x33333333) + ((m >> 2) & 0x33333333);
	m = (((m + (m >> 4)) & 0x0f0f0f0f) * 0x01010101) >> 24;
	if (n)
		__sync_fetch_and_add(n, m);
	return 0;
}

SEC("gpu/exit.block/fill*")
int block_left(struct wbpf_kernel_ctx *ctx)
{
	struct event event = { .block = ctx->block_idx[0], .sm = ctx->sm };
	__u32 zero = 0;
	__u64 *grid = bpf_map_lookup_elem(&grids, &zero);

	__sync_fetch_and_add(&exits, 1);
	if (grid)
		*grid = ctx->grid_dim[0];
	bpf_ringbuf_output(&events, &event, sizeof event, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/Apache-2.0";

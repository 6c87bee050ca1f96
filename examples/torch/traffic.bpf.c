// SPDX-License-Identifier: MIT OR Apache-2.0
// How many bytes each launch reads from global memory and writes there.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
#include "launches.h"

#define LAUNCH_BITS 14
#define LAUNCHES (1 << LAUNCH_BITS)
#define PROBES 4

struct launch {
	__u64 grid; /* %gridid + 1; 0: nobody's */
	__u64 kernel;
	__u64 first_begin;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LAUNCHES);
	__type(key, __u32);
	__type(value, struct launch);
} launches SEC(".maps");

struct bytes {
	__u64 read;
	__u64 written;
};

/* Of each launch by its place in `launches`; behind them, by the kernel's number, those of launches for which there was no room. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LAUNCHES + KERNELS);
	__type(key, __u32);
	__type(value, struct bytes);
} bytes SEC(".maps");

/* Before any access of the warp, so that accesses have only to look. */
SEC("gpu/entry.warp/*")
int begins(struct wbpf_kernel_ctx *ctx)
{
	__u64 grid = ctx->grid_id + 1;
	__u32 at = place_of(grid, LAUNCH_BITS);

	for (__u32 probe = 0; probe < PROBES; probe++) {
		__u32 key = (at + probe) % LAUNCHES;
		struct launch *l = bpf_map_lookup_elem(&launches, &key);
		__u64 there;

		if (!l)
			return 0;
		there = *(volatile __u64 *)&l->grid;
		if (!there) {
			there = __sync_val_compare_and_swap(&l->grid, 0, grid);
			if (!there) {
				l->kernel = ctx->kernel_id;
				l->first_begin = bpf_ktime_get_ns();
			}
		}
		if (!there || there == grid)
			return 0;
	}
	return 0;
}

SEC("gpu/mem.warp/*|space=global+generic")
int access(struct wbpf_mem_ctx *ctx)
{
	__u64 grid = ctx->grid_id + 1, moved;
	__u32 at = place_of(grid, LAUNCH_BITS), kind = ctx->kind;
	__u32 key = LAUNCHES + (__u32)ctx->kernel_id;
	struct bytes *b;

	/* Of a kernel with PTX the kind is known when it is patched, and what it decides costs nothing. */
	if (kind == WBPF_KIND_PREFETCH || kind == WBPF_KIND_OTHER)
		return 0;
	for (__u32 probe = 0; probe < PROBES; probe++) {
		__u32 place = (at + probe) % LAUNCHES;
		struct launch *l = bpf_map_lookup_elem(&launches, &place);

		if (l && l->grid == grid) {
			key = place;
			break;
		}
	}
	b = bpf_map_lookup_elem(&bytes, &key);
	if (!b)
		return 0;
	moved = (__u64)count(ctx->active_mask) * ctx->bytes;
	if (kind != WBPF_KIND_STORE)
		b->read += moved;
	if (kind == WBPF_KIND_STORE || kind == WBPF_KIND_ATOMIC || kind == WBPF_KIND_REDUCTION)
		b->written += moved;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

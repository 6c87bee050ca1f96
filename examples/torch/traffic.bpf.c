// SPDX-License-Identifier: MIT OR Apache-2.0
// How many bytes each launch reads from global memory and writes there. It is short, because Compute Sanitizer puts it into all kernels of a file and takes
// the longer for it the more there is.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

/* Kernels by number: as many as a map may have that is summed over the multiprocessors of a large GPU. */
#define KERNELS 12288

/* Launches follow each other in %gridid, and each has the place of its number; the first that comes keeps it. */
#define LAUNCHES 16384

struct launch {
	__u64 grid; /* %gridid + 1; 0: nobody's */
	__u64 kernel;
	__u64 came; /* when the first warp came, by `bpf_ktime_get_ns` */
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

/* Of each launch by its place in `launches`; behind them, by the kernel's number, those of launches whose place another one has. */
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
	__u32 key = grid % LAUNCHES;
	struct launch *l = bpf_map_lookup_elem(&launches, &key);

	if (l && !*(volatile __u64 *)&l->grid && !__sync_val_compare_and_swap(&l->grid, 0, grid)) {
		l->kernel = ctx->kernel_id;
		l->came = bpf_ktime_get_ns();
	}
	return 0;
}

static __always_inline __u32 count(__u32 m)
{
	m = m - ((m >> 1) & 0x55555555);
	m = (m & 0x33333333) + ((m >> 2) & 0x33333333);
	return (((m + (m >> 4)) & 0x0f0f0f0f) * 0x01010101) >> 24;
}

SEC("gpu/mem.warp/*|space=global+generic")
int access(struct wbpf_mem_ctx *ctx)
{
	__u64 grid = ctx->grid_id + 1, moved;
	__u32 kind = ctx->kind, key = grid % LAUNCHES;
	struct launch *l = bpf_map_lookup_elem(&launches, &key);
	struct bytes *b;

	/* Of a kernel with PTX the kind is known when it is patched, and what it decides costs nothing. */
	if (!l || kind == WBPF_KIND_PREFETCH || kind == WBPF_KIND_OTHER)
		return 0;
	if (l->grid != grid)
		key = LAUNCHES + (__u32)ctx->kernel_id;
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

// SPDX-License-Identifier: MIT OR Apache-2.0
// How many bytes does each kernel move, and which lines move them?
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct bytes {
	__u64 launches;
	__u64 global_read;
	__u64 global_written;
	__u64 shared_read;
	__u64 shared_written;
};

/* Places are passed often, and a program there may execute 256 instructions: enough for an array, not for a hash. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, wbpf_kernel_key_t);
	__type(value, struct bytes);
} by_kernel SEC(".maps");

struct place {
	__u64 accesses; /* of threads */
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096);
	__type(key, wbpf_site_id_t);
	__type(value, struct place);
} places SEC(".maps");

SEC("gpu/entry.block/*")
int at_start(struct wbpf_kernel_ctx *ctx)
{
	wbpf_kernel_key_t id = ctx->kernel_id;
	struct bytes *b = bpf_map_lookup_elem(&by_kernel, &id);

	if (!b || ctx->block_idx[0] || ctx->block_idx[1] || ctx->block_idx[2])
		return 0;
	b->launches += 1;
	return 0;
}

static __always_inline __u32 count(__u32 m)
{
	m = m - ((m >> 1) & 0x55555555);
	m = (m & 0x33333333) + ((m >> 2) & 0x33333333);
	return (((m + (m >> 4)) & 0x0f0f0f0f) * 0x01010101) >> 24;
}

/* Kind and space of a place are known when the kernel is patched: what they decide costs nothing there. */
SEC("gpu/mem.warp/*|kind=load+store+atomic+reduction,space=global+generic+shared")
int traffic(struct wbpf_mem_ctx *ctx)
{
	wbpf_kernel_key_t id = ctx->kernel_id;
	wbpf_site_id_t site = ctx->site;
	__u32 lanes = count(ctx->active_mask);
	__u64 moved = (__u64)lanes * ctx->bytes;
	struct place *p = bpf_map_lookup_elem(&places, &site);
	struct bytes *b = bpf_map_lookup_elem(&by_kernel, &id);

	if (p) {
		p->accesses += lanes;
		p->bytes += moved;
	}
	if (!b)
		return 0;
	if (ctx->kind != WBPF_KIND_STORE) {
		if (ctx->space == WBPF_SPACE_SHARED)
			b->shared_read += moved;
		else
			b->global_read += moved;
	}
	if (ctx->kind != WBPF_KIND_LOAD) {
		if (ctx->space == WBPF_SPACE_SHARED)
			b->shared_written += moved;
		else
			b->global_written += moved;
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// At which branches do the lanes of a warp part?
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct branch {
	__u64 warps; /* times that lanes of a warp came here together */
	__u64 split; /* and some of them took the branch and some did not */
	__u64 lanes;
	__u64 taken; /* lanes that took it */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096);
	__type(key, wbpf_site_id_t);
	__type(value, struct branch);
} branches SEC(".maps");

static __always_inline __u32 count(__u32 m)
{
	m = m - ((m >> 1) & 0x55555555);
	m = (m & 0x33333333) + ((m >> 2) & 0x33333333);
	return (((m + (m >> 4)) & 0x0f0f0f0f) * 0x01010101) >> 24;
}

SEC("gpu/branch.warp/*")
int divergence(struct wbpf_branch_ctx *ctx)
{
	wbpf_site_id_t site = ctx->site;
	__u32 taken = ctx->taken_mask, active = ctx->active_mask;
	struct branch *b = bpf_map_lookup_elem(&branches, &site);

	if (!b)
		return 0;
	b->warps += 1;
	if (taken != 0 && taken != active)
		b->split += 1;
	b->lanes += count(active);
	b->taken += count(taken);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Launches, blocks and threads per kernel name.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct totals {
	__u64 launches;
	__u64 blocks;
	__u64 threads;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, wbpf_kernel_id_t);
	__type(value, struct totals);
} kernels SEC(".maps");

SEC("gpu/entry.block/*")
int launchcount(struct wbpf_kernel_ctx *ctx)
{
	wbpf_kernel_id_t id = ctx->kernel_id;
	struct totals *t = bpf_map_lookup_elem(&kernels, &id);

	if (!t) {
		struct totals zero = {};

		bpf_map_update_elem(&kernels, &id, &zero, BPF_NOEXIST);
		t = bpf_map_lookup_elem(&kernels, &id);
		if (!t)
			return 0;
	}
	if (ctx->block_idx[0] == 0 && ctx->block_idx[1] == 0 && ctx->block_idx[2] == 0)
		t->launches += 1;
	t->blocks += 1;
	t->threads += (__u64)ctx->block_dim[0] * ctx->block_dim[1] * ctx->block_dim[2];
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

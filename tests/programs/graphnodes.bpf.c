// SPDX-License-Identifier: MIT OR Apache-2.0
// Which node of which graph each block is of, and the launch that the node was made by. With WITH_EXIT blocks that end are counted,
// too, which needs a launch record.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct by_node {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u64);
	__type(value, __u64);
};

struct by_node blocks SEC(".maps"), ids SEC(".maps");

static __always_inline void count(void *map, __u64 node)
{
	__u64 none = 0, *n;

	bpf_map_update_elem(map, &node, &none, BPF_NOEXIST);
	n = bpf_map_lookup_elem(map, &node);
	if (n)
		__sync_fetch_and_add(n, 1);
}

SEC("gpu/entry.block/*")
int begins(struct wbpf_kernel_ctx *ctx)
{
	__u64 node = bpf_gpu_graph_node(), id = ctx->launch_id;

	count(&blocks, node);
	bpf_map_update_elem(&ids, &node, &id, BPF_ANY);
	return 0;
}

#ifdef WITH_EXIT
struct by_node ended SEC(".maps");

SEC("gpu/exit.block/*")
int ends(struct wbpf_kernel_ctx *ctx)
{
	count(&ended, bpf_gpu_graph_node());
	return 0;
}
#endif

char LICENSE[] SEC("license") = "Dual MIT/GPL";

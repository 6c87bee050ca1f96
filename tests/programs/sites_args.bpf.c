// SPDX-License-Identifier: MIT OR Apache-2.0
// What a launch was given, as the kernel `given` of tests/apps/places.cu sees it. Sums over threads.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

/* 0: threads, 1: those with a pointer, 2: n, 3: with the ratio's bits, 4: small, 5: with the first 8 bytes of a struct,
 * 6: parameters, 7: dynamic shared memory, 8: blocks of clusters, 9: ranks in them, 10: arguments that there are not,
 * 11: numbers of launches, 12: the same by blocks */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} sums SEC(".maps");

static __always_inline void add(__u32 what, __u64 number)
{
	__u64 *n = bpf_map_lookup_elem(&sums, &what);

	if (n)
		*n += number;
}

static __always_inline int look(struct wbpf_kernel_ctx *ctx)
{
	add(0, 1);
	add(1, ctx->args[0] != 0);
	add(2, ctx->args[1]);
	add(3, ctx->args[2] == 0x4004000000000000); /* 2.5 */
	add(4, ctx->args[3]);
	add(5, ctx->args[4] == 0x1122334455667788);
	add(6, ctx->arg_count);
	add(7, ctx->dynamic_shared);
	add(8, ctx->cluster_dim[0] * ctx->cluster_dim[1] * ctx->cluster_dim[2]);
	add(9, ctx->cluster_rank);
	add(10, ctx->args[5] | ctx->args[15]);
	add(11, ctx->launch_id);
	return 0;
}

SEC("gpu/entry/*given*")
int at_entry(struct wbpf_kernel_ctx *ctx)
{
	return look(ctx);
}

SEC("gpu/exit/*given*")
int at_exit(struct wbpf_kernel_ctx *ctx)
{
	return look(ctx);
}

SEC("gpu/exit.block/*given*")
int at_end(struct wbpf_kernel_ctx *ctx)
{
	add(12, ctx->launch_id);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// What each thread of tests/apps/waits.cu waited at its barriers. tests/suite/src/waits.rs knows who waits.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

/* Threads of a kernel. */
#define TOTAL 512

struct wait {
	__u64 times;
	__u64 cycles;
};

/* By kernel, in the order of the sections below, and thread. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 5 * TOTAL);
	__type(key, __u32);
	__type(value, struct wait);
} waits SEC(".maps");

static __always_inline int waited(struct wbpf_barrier_ctx *ctx, __u32 kernel)
{
	__u32 key = kernel * TOTAL + ctx->block_idx[0] * ctx->block_dim[0] + ctx->thread_idx[0];
	struct wait *wait = bpf_map_lookup_elem(&waits, &key);

	if (wait) {
		wait->times += 1;
		wait->cycles += ctx->waited;
	}
	return 0;
}

#define AT(name, number, kinds)                                        \
	SEC("gpu/barrier/*by_" #name "*|kind=" #kinds ",when=after")     \
	int at_##name(struct wbpf_barrier_ctx *ctx)                      \
	{                                                                \
		return waited(ctx, number);                              \
	}

AT(sync, 0, sync)
AT(reduction, 1, sync)
AT(warp, 2, warp)
AT(cluster, 3, cluster_wait)
AT(mbarrier, 4, mbarrier_wait)

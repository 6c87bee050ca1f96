// SPDX-License-Identifier: MIT OR Apache-2.0
// Reads of the application's memory: what its kernel was given says what must be found where.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

/* 0: agreed, 1: did not, 2: threads without a request, 3: its request could not be read,
 * 4: loads that agreed, 5: that did not, 6: loads of shared memory */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u64);
} results SEC(".maps");

/* Requests that did not agree, by thread: what was found. */
struct wrong {
	long result;
	__u64 value;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct wrong);
} wrong SEC(".maps");

/* As in fenced.cu. */
struct ask {
	__u64 address;
	__u64 expected;
	int result;
	__u32 space;
};

static __always_inline void note(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&results, &what);

	if (n)
		*n += 1;
}

SEC("gpu/entry/*ask*")
int enter(struct wbpf_kernel_ctx *ctx)
{
	__u32 thread = ctx->thread_idx[0];
	struct wrong found = {};
	struct ask ask;

	if (thread >= (__u32)ctx->args[1]) {
		note(2);
		return 0;
	}
	if (bpf_probe_read_kernel(&ask, sizeof(ask), (void *)(ctx->args[0] + thread * sizeof(ask)))) {
		note(3);
		return 0;
	}
	found.value = 1;
	found.result = bpf_gpu_read(&found.value, sizeof(found.value), ask.address, ask.space);
	if (found.result == ask.result && found.value == ask.expected) {
		note(0);
		return 0;
	}
	note(1);
	bpf_map_update_elem(&wrong, &thread, &found, BPF_ANY);
	return 0;
}

/* What a load has just given is there for us too, in the load's own space. */
SEC("gpu/mem/*ask*|kind=load,size=8,when=after")
int loaded(struct wbpf_mem_ctx *ctx)
{
	__u64 value = 0;

	if (ctx->space != WBPF_SPACE_GLOBAL && ctx->space != WBPF_SPACE_GENERIC && ctx->space != WBPF_SPACE_SHARED)
		return 0;
	if (ctx->space == WBPF_SPACE_SHARED)
		note(6);
	if (bpf_gpu_read(&value, sizeof(value), ctx->address, ctx->space) == 0 && value == ctx->value[0])
		note(4);
	else
		note(5);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

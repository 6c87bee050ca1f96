// SPDX-License-Identifier: MIT OR Apache-2.0
// How long it takes from the application's call that launches a kernel to the kernel's first block.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
#include "warpbpf_cuda.h"

/* Launches that wait for their first block; if more do, the oldest are not counted. */
#define WAITING 4096

struct start {
	__u64 launch;
	__u64 kernel;
	__u64 ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WAITING);
	__type(key, __u32);
	__type(value, struct start);
} starts SEC(".maps");

/* By powers of two of microseconds. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 24);
	__type(key, __u32);
	__type(value, __u64);
} latency_us SEC(".maps");

struct totals {
	__u64 launches;
	__u64 ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, wbpf_kernel_id_t);
	__type(value, struct totals);
} waited SEC(".maps");

static __always_inline __u32 place(__u64 kernel, __u64 launch)
{
	return (launch + kernel * 61) % WAITING;
}

/* On the CPU, when the application launches. Both sides number the launches alike. */
SEC("cuda/cuLaunch*Kernel*")
int at_launch(struct wbpf_cuda_ctx *ctx)
{
	struct start now = {
		.launch = ctx->launch_id,
		.kernel = ctx->kernel_id,
		.ns = ctx->start_ns,
	};
	__u32 at = place(now.kernel, now.launch);

	if (now.launch)
		bpf_map_update_elem(&starts, &at, &now, BPF_ANY);
	return 0;
}

/* On the GPU, in each block: the first one takes what the launch has left. */
SEC("gpu/entry.block/*")
int first_block(struct wbpf_kernel_ctx *ctx)
{
	__u64 launch = ctx->launch_id, now = bpf_ktime_get_ns(), took;
	wbpf_kernel_id_t kernel = ctx->kernel_id;
	__u32 at = place(kernel, launch), slot = 0;
	struct start *start = bpf_map_lookup_elem(&starts, &at);
	struct totals *totals, zero = {};
	__u64 *count;

	if (!start || start->kernel != kernel || start->launch != launch)
		return 0;
	if (__sync_val_compare_and_swap(&start->launch, launch, 0) != launch)
		return 0;
	/* The clocks are compared with an error, which the report says. */
	took = now > start->ns ? now - start->ns : 0;
	for (__u64 us = took / 1000; us && slot < 23; us >>= 1)
		slot++;
	count = bpf_map_lookup_elem(&latency_us, &slot);
	if (count)
		*count += 1;
	bpf_map_update_elem(&waited, &kernel, &zero, BPF_NOEXIST);
	totals = bpf_map_lookup_elem(&waited, &kernel);
	if (totals) {
		totals->launches += 1;
		totals->ns += took;
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Runs where an application's kernels call bpftime's stub: counts the calls, and makes a record of those of each block's first thread.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "stubtrace.h"

static __u64 (*bpf_get_globaltimer)(void) = (void *)502;
static __u64 (*bpf_get_block_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)503;
static __u64 (*bpf_get_thread_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)505;

struct {
	__uint(type, 1527);
	__uint(max_entries, 128);
	__type(key, __u32);
	__type(value, struct event);
} events SEC(".maps");

__u64 calls;

SEC("kprobe/__bpftime_cuda__kernel_trace")
int cuda__kernel_trace(void)
{
	struct event event = {};

	__sync_fetch_and_add(&calls, 1);
	bpf_get_thread_idx(&event.thread[0], &event.thread[1], &event.thread[2]);
	if (event.thread[0] != 0)
		return 0;
	bpf_get_block_idx(&event.block[0], &event.block[1], &event.block[2]);
	event.time = bpf_get_globaltimer();
	bpf_perf_event_output(0, &events, 0, &event, sizeof(event));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// A record of each thread at a kernel's start, in bpftime's ring of events.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "kerneltrace.h"

static __u64 (*bpf_get_globaltimer)(void) = (void *)502;
static __u64 (*bpf_get_block_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)503;
static __u64 (*bpf_get_thread_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)505;

struct {
	__uint(type, 1527);
	__uint(max_entries, 128);
	__type(key, __u32);
	__type(value, struct event);
} events SEC(".maps");

SEC("kprobe/_Z9vectorAddPKfS0_Pfi")
int cuda__kernel_trace(void)
{
	struct event event = {};

	bpf_get_block_idx(&event.block[0], &event.block[1], &event.block[2]);
	bpf_get_thread_idx(&event.thread[0], &event.thread[1], &event.thread[2]);
	event.time = bpf_get_globaltimer();
	bpf_perf_event_output(0, &events, 0, &event, sizeof(event));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

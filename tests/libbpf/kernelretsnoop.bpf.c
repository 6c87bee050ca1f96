// SPDX-License-Identifier: MIT OR Apache-2.0
// A record of each thread that leaves a kernel, in bpftime's ring of events, by the helper that bpftime has for it.
#define BPF_NO_GLOBAL_DATA
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "kernelretsnoop.h"

static __u64 (*bpf_get_globaltimer)(void) = (void *)502;
static __u64 (*bpf_get_block_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)503;
static __u64 (*bpf_get_thread_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)505;

struct {
	__uint(type, 1527);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct left);
} rb SEC(".maps");

SEC("kretprobe/_Z9vectorAddPKfS0_Pf")
int cuda__retprobe(void)
{
	struct left left = {};

	bpf_get_block_idx(&left.block_x, &left.block_y, &left.block_z);
	bpf_get_thread_idx(&left.thread_x, &left.thread_y, &left.thread_z);
	left.timestamp = bpf_get_globaltimer();
	return bpf_perf_event_output(NULL, &rb, 0, &left, sizeof(left));
}

char LICENSE[] SEC("license") = "GPL";

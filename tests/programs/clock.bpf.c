// SPDX-License-Identifier: MIT OR Apache-2.0
// Host time and device time of each block, to compare the clocks.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct times {
	__u64 host;
	__u64 device;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
	__type(value, struct times);
} events SEC(".maps");

SEC("gpu/entry.block/*")
int clock(struct wbpf_kernel_ctx *ctx)
{
	struct times t;

	t.device = bpf_gpu_globaltimer();
	t.host = bpf_ktime_get_ns();
	bpf_ringbuf_output(&events, &t, sizeof(t), 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

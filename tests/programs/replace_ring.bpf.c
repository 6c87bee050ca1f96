// SPDX-License-Identifier: MIT OR Apache-2.0
// What no replacement can bring: a ring.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} records SEC(".maps");

SEC("gpu/entry/*")
int records_it(struct wbpf_kernel_ctx *ctx)
{
	__u64 one = 1;

	return bpf_ringbuf_output(&records, &one, sizeof(one), 0);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

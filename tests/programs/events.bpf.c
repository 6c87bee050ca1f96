// SPDX-License-Identifier: MIT OR Apache-2.0
// Each thread sends its number through one of two small rings, and counts those that had no room. `WAIT_US`: how long it waits for room.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

#ifndef WAIT_US
#define WAIT_US 0
#endif

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
	__uint(map_extra, WAIT_US);
	__type(value, __u64);
} even SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
	__uint(map_extra, WAIT_US);
	__type(value, __u64);
} odd SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} refused SEC(".maps");

SEC("gpu/exit/*")
int send(struct wbpf_kernel_ctx *ctx)
{
	__u64 number = (__u64)ctx->block_idx[0] * ctx->block_dim[0] + ctx->thread_idx[0];
	__u32 is_odd = number & 1;
	__u64 *count;
	long sent;

	if (is_odd) {
		sent = bpf_ringbuf_output(&odd, &number, sizeof(number), 0);
		/* The compiler does not make one call of two. */
		asm volatile("" : "+r"(sent));
	} else {
		sent = bpf_ringbuf_output(&even, &number, sizeof(number), 0);
	}
	count = bpf_map_lookup_elem(&refused, &is_odd);
	if (sent && count)
		*count += 1;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

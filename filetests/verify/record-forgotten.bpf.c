// SPDX-License-Identifier: MIT OR Apache-2.0
// One way out does not give the record back.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} events SEC(".maps");

SEC("gpu/entry/*")
int probe(struct wbpf_kernel_ctx *ctx)
{
	__u64 *record = bpf_ringbuf_reserve(&events, 8, 0);

	if (!record)
		return 0;
	if (ctx->lane > 3)
		return 0;
	*record = ctx->block_idx[0];
	bpf_ringbuf_submit(record, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// One record for each thread that returns, in a ring buffer.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "retsnoop.h"

static __u64 (*bpf_get_globaltimer)(void) = (void *)502;
static __u64 (*bpf_get_block_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)503;
static __u64 (*bpf_get_thread_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)505;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} records SEC(".maps");

SEC("kretprobe/_Z9vectorAddPKfS0_Pfi")
int cuda__leave(void)
{
	struct record *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	__u64 x, y, z;

	if (!record)
		return 0;
	bpf_get_block_idx(&x, &y, &z);
	record->block = x;
	bpf_get_thread_idx(&x, &y, &z);
	record->thread = x;
	record->time = bpf_get_globaltimer();
	bpf_ringbuf_submit(record, 0);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

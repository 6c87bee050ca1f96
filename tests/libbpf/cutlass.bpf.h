// SPDX-License-Identifier: MIT OR Apache-2.0
// What counts launches of a kernel with a long name: by its first thread, and threads by all.
#pragma once
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

static __u64 (*bpf_get_block_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)503;
static __u64 (*bpf_get_thread_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)505;

struct {
	__uint(type, 1503);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} cutlass_call_count SEC(".maps");

static __always_inline int count_launch(void)
{
	__u64 tx = 0, ty = 0, tz = 0, bx = 0, by = 0, bz = 0, next = 1, *count;
	__u32 key = 0;

	bpf_get_thread_idx(&tx, &ty, &tz);
	bpf_get_block_idx(&bx, &by, &bz);
	// Launches in one stream follow each other, so one thread of each may read and write back.
	if ((tx | ty | tz | bx | by | bz) == 0) {
		count = bpf_map_lookup_elem(&cutlass_call_count, &key);
		if (count)
			next = *count + 1;
		bpf_map_update_elem(&cutlass_call_count, &key, &next, BPF_ANY);
	}
	key = 1;
	count = bpf_map_lookup_elem(&cutlass_call_count, &key);
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

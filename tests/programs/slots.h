/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Maps that programs in slots have in common with those that were there before them. */
#pragma once

/* Sums, which a program tells apart. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} sums SEC(".maps");

/* Stores by block. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} blocks SEC(".maps");

static __always_inline int add(__u32 key, __u64 value)
{
	__u64 *sum = bpf_map_lookup_elem(&sums, &key);

	if (sum)
		__sync_fetch_and_add(sum, value);
	return 0;
}

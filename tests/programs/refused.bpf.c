// SPDX-License-Identifier: MIT OR Apache-2.0
// Forgets the null check: must be refused, with this line in the message.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} hits SEC(".maps");

SEC("gpu/entry/*")
int forgets(void *ctx)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&hits, &zero);

	*n += 1;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

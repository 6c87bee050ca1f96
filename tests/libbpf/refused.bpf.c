// SPDX-License-Identifier: MIT OR Apache-2.0
// A program that the verifier refuses, with the line that it must name.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

SEC("kprobe/_Z9vectorAddPKfS0_Pfi")
int cuda__refused(void)
{
	__u32 key = 1;
	__u64 *count = bpf_map_lookup_elem(&counts, &key);

	*count += 1; /* it may be NULL */
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

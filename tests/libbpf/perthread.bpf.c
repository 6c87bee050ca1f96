// SPDX-License-Identifier: MIT OR Apache-2.0
// A count for each thread, in bpftime's map of that kind.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, 1502);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

SEC("kretprobe/_Z9vectorAddPKfS0_Pfi")
int cuda__leave(void)
{
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&counts, &key);

	if (count)
		*count += 1;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

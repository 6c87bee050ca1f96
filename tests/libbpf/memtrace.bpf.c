// SPDX-License-Identifier: MIT OR Apache-2.0
// Counts accesses to memory, in bpftime's shared array and with its plain addition.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, 1503);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} counter SEC(".maps");

SEC("kprobe/__memcapture")
int cuda__trace_memory(void *ctx)
{
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&counter, &key);

	if (count)
		*count = *count + 1;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

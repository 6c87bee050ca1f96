// SPDX-License-Identifier: MIT OR Apache-2.0
// bpftime's program that is a kernel itself, beside a probe.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} runs SEC(".maps");

SEC("kprobe/__directly_run")
int cuda__run(void)
{
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&runs, &key);

	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

SEC("kprobe/__memcapture")
int cuda__capture(void)
{
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&runs, &key);

	if (count)
		__sync_fetch_and_add(count, 100000);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

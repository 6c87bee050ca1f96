// SPDX-License-Identifier: MIT OR Apache-2.0
// Two programs for one place, which count for themselves; the second takes the place of the first. A third has a map of its own.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} hits SEC(".maps"), other SEC(".maps");

static int count(void *map, __u32 key)
{
	__u64 *value = bpf_map_lookup_elem(map, &key);

	if (value)
		__sync_fetch_and_add(value, 1);
	return 0;
}

SEC("kprobe/_Z4stepPj")
int cuda__first(void)
{
	return count(&hits, 0);
}

SEC("?kprobe/_Z4stepPj")
int cuda__second(void)
{
	return count(&hits, 1);
}

SEC("?kprobe/_Z4stepPj")
int cuda__third(void)
{
	return count(&other, 0);
}

char LICENSE[] SEC("license") = "GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs for one place, each of which counts in a map of its own and in a variable of all, and one for a function on the CPU.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define ONE(name)                                                                                \
	struct {                                                                                 \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                \
		__uint(max_entries, 1);                                                          \
		__type(key, __u32);                                                              \
		__type(value, __u64);                                                            \
	} name SEC(".maps")

ONE(first);
ONE(second);
ONE(third);
__u64 all, thirds, mine, calls;

static int count(void *map)
{
	__u32 key = 0;
	__u64 *value = bpf_map_lookup_elem(map, &key);

	if (value)
		__sync_fetch_and_add(value, 1);
	__sync_fetch_and_add(&all, 1);
	return 0;
}

SEC("kprobe/_Z4stepPj")
int cuda__first(void)
{
	return count(&first);
}

SEC("kprobe/_Z4stepPj")
int cuda__second(void)
{
	return count(&second);
}

SEC("kretprobe/_Z4stepPj")
int cuda__third(void)
{
	// Nobody adds to this before, and it stands beside one that all add to.
	__sync_fetch_and_add(&thirds, 1);
	return count(&third);
}

SEC("uprobe")
int on_call(void *ctx)
{
	__sync_fetch_and_add(&calls, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

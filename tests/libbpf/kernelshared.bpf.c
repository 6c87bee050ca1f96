// SPDX-License-Identifier: MIT OR Apache-2.0
// bpftime's array that is shared with the kernel: threads of a GPU's kernel add to one key, the CPU to another.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, 1504);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static void add(__u32 key)
{
	__u64 *count = bpf_map_lookup_elem(&counts, &key);

	if (count)
		__sync_fetch_and_add(count, 1);
}

SEC("kretprobe/_Z9vectorAddPKfS0_Pfi")
int cuda__leave(void)
{
	add(0);
	return 0;
}

SEC("uretprobe")
int on_launched(void *ctx)
{
	add(1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// The forms that bpftime's users write: section names, function names, map type and helper numbers spelled out.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, 1502);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} call_count SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} exits SEC(".maps");

static const __u64 (*bpf_get_globaltimer)(void) = (void *)502;
static const __u64 (*bpf_get_thread_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)505;

SEC("kprobe/_Z9vectorAddPKfS0_Pfi")
int cuda__probe(void)
{
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&call_count, &key);

	if (count)
		*count += 1;
	return 0;
}

SEC("kretprobe/_Z9vectorAddPKfS0_Pfi")
int cuda__retprobe(void)
{
	__u64 x, y, z;
	__u32 key;
	__u64 *count;

	bpf_get_thread_idx(&x, &y, &z);
	key = bpf_get_globaltimer() == 0 || x >= 256;
	count = bpf_map_lookup_elem(&exits, &key);
	if (count)
		*count += 1;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

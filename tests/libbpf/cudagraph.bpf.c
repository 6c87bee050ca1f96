// SPDX-License-Identifier: MIT OR Apache-2.0
// Calls of a kernel that a graph holds, and its time, per process, as bpftime's example of this name counts them.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

static __u64 (*bpf_get_globaltimer)(void) = (void *)502;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} calls_by_pid SEC(".maps"), returns_by_pid SEC(".maps");

struct {
	__uint(type, 1502);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} start SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} time_sum SEC(".maps");

static void count(void *map)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	__u64 zero = 0, *value = bpf_map_lookup_elem(map, &pid);

	if (!value) {
		bpf_map_update_elem(map, &pid, &zero, BPF_NOEXIST);
		value = bpf_map_lookup_elem(map, &pid);
	}
	if (value)
		__sync_fetch_and_add(value, 1);
}

SEC("kprobe/_Z9vectorAddPKfS0_Pf")
int cuda__enter(void)
{
	__u64 now = bpf_get_globaltimer();
	__u32 key = 0;

	count(&calls_by_pid);
	bpf_map_update_elem(&start, &key, &now, BPF_ANY);
	return 0;
}

SEC("kretprobe/_Z9vectorAddPKfS0_Pf")
int cuda__leave(void)
{
	__u32 key = 0;
	__u64 *began = bpf_map_lookup_elem(&start, &key), *sum = bpf_map_lookup_elem(&time_sum, &key);

	count(&returns_by_pid);
	if (began && sum && *began)
		__sync_fetch_and_add(sum, bpf_get_globaltimer() - *began + 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

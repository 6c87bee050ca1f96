// SPDX-License-Identifier: MIT OR Apache-2.0
// Calls and time per process, as tracers of CPU functions keep them: hashes by process, an entry and a return probe.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} calls SEC(".maps"), returns SEC(".maps");

static void count(void *map)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	__u64 zero = 0, *value = bpf_map_lookup_elem(map, &pid);

	if (!value) {
		// Whoever comes second finds the first one's.
		bpf_map_update_elem(map, &pid, &zero, BPF_NOEXIST);
		value = bpf_map_lookup_elem(map, &pid);
	}
	if (value)
		__sync_fetch_and_add(value, 1);
}

SEC("kprobe/_Z9vectorAddPKfS0_Pfi")
int cuda__enter(void)
{
	count(&calls);
	return 0;
}

SEC("kretprobe/_Z9vectorAddPKfS0_Pfi")
int cuda__leave(void)
{
	count(&returns);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Launches of a kernel that a graph holds, and its time, per process, kept by the first thread of each as bpftime's example does:
// it reads, adds, and writes the whole value.
#define BPF_NO_GLOBAL_DATA
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

static __u64 (*bpf_get_globaltimer)(void) = (void *)502;
static __u64 (*bpf_get_block_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)503;
static __u64 (*bpf_get_thread_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)505;

struct by_pid {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
};
struct by_pid start_ts SEC(".maps"), total_time_ns SEC(".maps"), call_count SEC(".maps");

static int is_first(void)
{
	__u64 bx, by, bz, tx, ty, tz;

	bpf_get_block_idx(&bx, &by, &bz);
	bpf_get_thread_idx(&tx, &ty, &tz);
	return (bx | by | bz | tx | ty | tz) == 0;
}

static void add(void *map, __u32 pid, __u64 amount)
{
	__u64 *value = bpf_map_lookup_elem(map, &pid);

	if (value)
		amount += *value;
	bpf_map_update_elem(map, &pid, &amount, BPF_ANY);
}

SEC("kprobe/_Z9vectorAddPKfS0_Pf")
int cuda__probe(void)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	__u64 now = bpf_get_globaltimer();

	if (!is_first())
		return 0;
	bpf_map_update_elem(&start_ts, &pid, &now, BPF_ANY);
	add(&call_count, pid, 1);
	return 0;
}

SEC("kretprobe/_Z9vectorAddPKfS0_Pf")
int cuda__retprobe(void)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	__u64 *start, took;

	if (!is_first())
		return 0;
	start = bpf_map_lookup_elem(&start_ts, &pid);
	if (!start)
		return 0;
	// No shorter than the clock can tell.
	took = bpf_get_globaltimer() - *start + 1;
	bpf_map_delete_elem(&start_ts, &pid);
	add(&total_time_ns, pid, took);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

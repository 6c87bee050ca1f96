// SPDX-License-Identifier: MIT OR Apache-2.0
// How long after the application asked for it a kernel begins: a probe of the runtime's function on the CPU writes when, the
// kernel's threads look how long ago that was. Both clocks are CLOCK_MONOTONIC.
#define __TARGET_ARCH_x86
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "launchlate.h"

struct {
	__uint(type, 1503);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} last_launch SEC(".maps");

struct {
	__uint(type, 1503);
	__uint(max_entries, BINS + 1);
	__type(key, __u32);
	__type(value, __u64);
} histogram SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} launches SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} events SEC(".maps");

__u64 returns, failures, entries;

// The tool may name another function.
SEC("uprobe/./vec_add:_Z16cudaLaunchKernelIcE9cudaErrorPT_4dim3S3_PPvmP11CUstream_st")
int BPF_KPROBE(on_launch, const void *function)
{
	__u64 now = bpf_ktime_get_ns(), one = 1, *count;
	__u32 key = 0, pid = bpf_get_current_pid_tgid() >> 32;
	struct event *event;

	bpf_map_update_elem(&last_launch, &key, &now, BPF_ANY);
	count = bpf_map_lookup_elem(&launches, &pid);
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&launches, &pid, &one, BPF_NOEXIST);
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event)
		return 0;
	event->time = now;
	event->function = (__u64)function;
	event->pid = pid;
	bpf_get_current_comm(event->name, sizeof(event->name));
	bpf_ringbuf_submit(event, 0);
	return 0;
}

SEC("uretprobe/./vec_add:_Z16cudaLaunchKernelIcE9cudaErrorPT_4dim3S3_PPvmP11CUstream_st")
int BPF_KRETPROBE(on_launched, int status)
{
	__sync_fetch_and_add(&returns, 1);
	if (status)
		__sync_fetch_and_add(&failures, 1);
	return 0;
}

// By its name in C++: the applications that are traced differ in its parameters.
SEC("kprobe/vectorAdd")
int cuda__enter(void)
{
	__u64 now = bpf_ktime_get_ns(), *last, *bin, width = 100;
	__u32 key = 0;

	__sync_fetch_and_add(&entries, 1);
	last = bpf_map_lookup_elem(&last_launch, &key);
	if (!last)
		return 0;
	if (now < *last) {
		// A launch cannot be seen before it was asked for.
		key = BINS;
	} else {
		now -= *last;
		for (; key < BINS - 1 && now >= width; key++)
			width *= 10;
	}
	bin = bpf_map_lookup_elem(&histogram, &key);
	if (bin)
		__sync_fetch_and_add(bin, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

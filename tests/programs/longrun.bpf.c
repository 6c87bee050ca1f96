// SPDX-License-Identifier: MIT OR Apache-2.0
// Runs at each load of a kernel that does not end by itself, and does what the host asks for through maps.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct order {
	__u32 what;
	__u32 times;
	__u64 value;
};

/* [0]: end the kernel */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct order);
} orders SEC(".maps");

/* 0: the value of order 7 as it was seen last, 1: it is gone after it was seen, 2: `setting`, 3: control[1] */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

/* Rounds of all threads. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} rounds SEC(".maps");

__u64 setting = 3;

static __always_inline void say(__u32 what, __u64 value)
{
	bpf_map_update_elem(&seen, &what, &value, BPF_ANY);
}

SEC("gpu/mem/*spin*|kind=load,size=4")
int spinning(struct wbpf_mem_ctx *ctx)
{
	__u32 key = 7, zero = 0, one = 1;
	struct order *order;
	__u64 *n, last = 0;
	__u32 *flag;

	n = bpf_map_lookup_elem(&rounds, &zero);
	if (n)
		*n += 1;
	/* First what others saw, then the order: one that is missing now and was seen before is gone. */
	n = bpf_map_lookup_elem(&seen, &zero);
	if (n)
		last = *(volatile __u64 *)n;
	order = bpf_map_lookup_elem(&orders, &key);
	if (order)
		say(0, order->value * order->times);
	else if (last)
		say(1, 1);
	say(2, *(volatile __u64 *)&setting);
	flag = bpf_map_lookup_elem(&control, &one);
	if (flag)
		say(3, *(volatile __u32 *)flag);
	flag = bpf_map_lookup_elem(&control, &zero);
	if (flag && *(volatile __u32 *)flag)
		bpf_gpu_exit();
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

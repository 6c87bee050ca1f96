// SPDX-License-Identifier: MIT OR Apache-2.0
// Linux's helpers that are not served are refused by their names.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u32);
} programs SEC(".maps");

SEC("gpu/entry/*")
int dispatch(void *ctx)
{
	bpf_tail_call(ctx, &programs, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

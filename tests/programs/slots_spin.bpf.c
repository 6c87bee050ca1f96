// SPDX-License-Identifier: MIT OR Apache-2.0
// Comes into slots beside gate.bpf.c, while a kernel spins and things fail.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} passes SEC(".maps");

const volatile __u64 step = 1;

SEC("gpu/mem/*spin*|kind=load,size=4")
int more(struct wbpf_mem_ctx *ctx)
{
	__u32 key = 1;
	__u64 *n = bpf_map_lookup_elem(&passes, &key);

	if (n)
		__sync_fetch_and_add(n, step);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

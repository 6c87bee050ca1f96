// SPDX-License-Identifier: MIT OR Apache-2.0
// Two programs that count at each load of a kernel that does not end by itself, and one that ends it when the host says so.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

/* [0]: end the kernel */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} control SEC(".maps");

/* By program. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} passes SEC(".maps");

static __always_inline int count(__u32 key)
{
	__u64 *n = bpf_map_lookup_elem(&passes, &key);

	if (n)
		__sync_fetch_and_add(n, 1);
	return 0;
}

SEC("gpu/mem/*spin*|kind=load,size=4")
int first(struct wbpf_mem_ctx *ctx)
{
	return count(0);
}

SEC("gpu/mem/*spin*|kind=load,size=4")
int second(struct wbpf_mem_ctx *ctx)
{
	return count(1);
}

SEC("gpu/mem/*spin*|kind=load,size=4")
int ender(struct wbpf_mem_ctx *ctx)
{
	__u32 zero = 0;
	__u32 *flag = bpf_map_lookup_elem(&control, &zero);

	if (flag && *(volatile __u32 *)flag)
		bpf_gpu_exit();
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

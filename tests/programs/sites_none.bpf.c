// SPDX-License-Identifier: MIT OR Apache-2.0
// Wants what no kernel of tests/apps/places.cu has: nothing may be put anywhere.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline int count(void)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&counts, &zero);

	if (n)
		*n += 1;
	return 0;
}

SEC("gpu/mem/*|kind=texture")
int textures(struct wbpf_mem_ctx *ctx)
{
	return count();
}

SEC("gpu/mem/*|kind=load,space=global,size>16")
int larger_than_any(struct wbpf_mem_ctx *ctx)
{
	return count();
}

SEC("gpu/insn/*|op=mma.*")
int products(struct wbpf_insn_ctx *ctx)
{
	return count();
}

SEC("gpu/line/*|at=elsewhere.cu:7")
int elsewhere(struct wbpf_site_ctx *ctx)
{
	return count();
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

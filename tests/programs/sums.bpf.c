// SPDX-License-Identifier: MIT OR Apache-2.0
// Sums at fixed places of a map that only the host reads: they are kept in registers until a thread leaves. Small ones,
// ones too large to be added up among lanes in 32 bits, ones that wrap, and ones that go down.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct sums {
	__u64 accesses;
	__u64 bytes;
	__u64 large;
	__u64 down;
	__u32 wraps;
	__u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct sums);
} sums SEC(".maps");

static __always_inline void add(__u32 key, __u64 bytes)
{
	struct sums *s = bpf_map_lookup_elem(&sums, &key);

	if (!s)
		return;
	s->accesses += 1;
	s->bytes += bytes;
	s->large += 1ULL << 40;
	s->down -= 3;
	s->wraps += 0x40000001;
}

SEC("gpu/mem/*|space=global+generic+shared+local")
int at_access(struct wbpf_mem_ctx *ctx)
{
	add(0, ctx->bytes);
	return 0;
}

SEC("gpu/branch/*")
int at_branch(struct wbpf_branch_ctx *ctx)
{
	add(1, ctx->taken);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

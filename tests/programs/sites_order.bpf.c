// SPDX-License-Identifier: MIT OR Apache-2.0
// Four programs at one store of tests/apps/places.cu `vectors`, by four ways to it: each appends its number to what its
// thread has. The order is that of the object, in which sections come one after the other.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERGPUTD_ARRAY);
	__uint(max_entries, 1);
	__uint(map_extra, 4096);
	__type(key, __u32);
	__type(value, __u64);
} orders SEC(".maps");

static __always_inline int append(__u32 number)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&orders, &zero);

	if (n)
		*n = *n * 10 + number;
	return 0;
}

SEC("gpu/insn/*vectors*|op=st.global.*")
int first(struct wbpf_insn_ctx *ctx)
{
	return append(1);
}

SEC("gpu/mem/*vectors*|kind=store")
int second(struct wbpf_mem_ctx *ctx)
{
	return append(2);
}

SEC("gpu/mem/*vectors*|kind=store")
int third(struct wbpf_mem_ctx *ctx)
{
	return append(3);
}

SEC("gpu/mem/*vectors*|size=16,kind=store,space=global")
int fourth(struct wbpf_mem_ctx *ctx)
{
	return append(4);
}

/* Behind the store: after all of those, wherever it stands. */
SEC("gpu/mem/*vectors*|kind=store,when=after")
int fifth(struct wbpf_mem_ctx *ctx)
{
	return append(5);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

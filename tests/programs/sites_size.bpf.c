// SPDX-License-Identifier: MIT OR Apache-2.0
// Filters that are decided when the kernel is patched: the loads of tests/apps/places.cu `vectors` by their size.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

/* 0: loads of 16 bytes and more, 1: smaller ones, 2: all loads, 3: stores of 16 bytes, 4: bytes of 0, 5: sum of what 1
 * loaded, 6: sum of the third floats of 3, 7: bytes of value there */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline void add(__u32 key, __u64 number)
{
	__u64 *n = bpf_map_lookup_elem(&counts, &key);

	if (n)
		*n += number;
}

SEC("gpu/mem/*vectors*|kind=load,space=global,size>=16")
int wide(struct wbpf_mem_ctx *ctx)
{
	add(0, 1);
	add(4, ctx->bytes);
	return 0;
}

SEC("gpu/mem/*vectors*|kind=load,space=global,size<16,when=after")
int narrow(struct wbpf_mem_ctx *ctx)
{
	add(1, 1);
	add(5, ctx->value[0]);
	return 0;
}

SEC("gpu/mem/*vectors*|kind=load,space=global")
int loads(struct wbpf_mem_ctx *ctx)
{
	add(2, 1);
	return 0;
}

SEC("gpu/mem/*vectors*|kind=store,size=16")
int stored(struct wbpf_mem_ctx *ctx)
{
	add(3, 1);
	add(6, ctx->value[1] & 0xffffffff);
	add(7, ctx->value_bytes);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// What benches/hash.cu does by hand, with a hash: one operation in every thread of each kernel.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

#ifndef TYPE
#define TYPE BPF_MAP_TYPE_HASH
#endif

/* The value that a thread has put in, or something was added to that. */
#ifndef IS_OF
#define IS_OF(value, n) ((__u32)(value) == (__u32)(n))
#endif

struct {
	__uint(type, TYPE);
	__uint(max_entries, 1 << 20);
	__type(key, __u64);
	__type(value, __u64);
} table SEC(".maps");

/* What benches/hash.cu counts too: operations that did what they should. */
enum { INSERTED, COUNTED, FOUND, MISSED, CROWDED, DELETED, SET, AGAIN, RUSHED, CLEARED, ABSENT, RESULTS };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RESULTS);
	__type(key, __u32);
	__type(value, __u64);
} results SEC(".maps");

static __always_inline void note(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&results, &what);

	if (n)
		*n += 1;
}

static __always_inline __u64 number(struct wbpf_kernel_ctx *ctx)
{
	__u64 thread = (__u64)ctx->block_idx[0] * ctx->block_dim[0] + ctx->thread_idx[0];

	return thread + (__u32)ctx->args[0];
}

static __always_inline __u64 key_of(__u64 number)
{
	return (number + 1) * 0x9E3779B97F4A7C15;
}

SEC("gpu/entry/ours_insert")
int insert(struct wbpf_kernel_ctx *ctx)
{
	__u64 n = number(ctx), key = key_of(n);

	if (bpf_map_update_elem(&table, &key, &n, BPF_ANY) == 0)
		note(INSERTED);
	return 0;
}

SEC("gpu/entry/ours_count")
int count(struct wbpf_kernel_ctx *ctx)
{
	__u64 key = key_of(number(ctx)), *value = bpf_map_lookup_elem(&table, &key);

	if (!value)
		return 0;
	__sync_fetch_and_add(value, 1ull << 32);
	note(COUNTED);
	return 0;
}

SEC("gpu/entry/ours_find")
int find(struct wbpf_kernel_ctx *ctx)
{
	__u64 n = number(ctx), key = key_of(n), *value = bpf_map_lookup_elem(&table, &key);

	if (value && IS_OF(*value, n))
		note(FOUND);
	return 0;
}

SEC("gpu/entry/ours_miss")
int miss(struct wbpf_kernel_ctx *ctx)
{
	__u64 key = key_of(number(ctx));

	if (!bpf_map_lookup_elem(&table, &key))
		note(MISSED);
	return 0;
}

SEC("gpu/entry/ours_crowd")
int crowd(struct wbpf_kernel_ctx *ctx)
{
	__u64 key = key_of(number(ctx) % 64), *value = bpf_map_lookup_elem(&table, &key);

	if (!value)
		return 0;
	__sync_fetch_and_add(value, 1ull << 32);
	note(CROWDED);
	return 0;
}

SEC("gpu/entry/ours_set")
int set(struct wbpf_kernel_ctx *ctx)
{
	__u64 n = number(ctx), key = key_of(n);

	n |= 7ull << 32;
	if (bpf_map_update_elem(&table, &key, &n, BPF_ANY) == 0)
		note(SET);
	return 0;
}

SEC("gpu/entry/ours_delete")
int delete(struct wbpf_kernel_ctx *ctx)
{
	__u64 key = key_of(number(ctx));

	if (bpf_map_delete_elem(&table, &key) == 0)
		note(DELETED);
	return 0;
}

SEC("gpu/entry/ours_again")
int again(struct wbpf_kernel_ctx *ctx)
{
	__u64 n = number(ctx), key = key_of(n);

	if (bpf_map_update_elem(&table, &key, &n, BPF_EXIST) == 0)
		note(AGAIN);
	return 0;
}

/* 64 keys that all threads share. */
static __always_inline __u64 shared_key(struct wbpf_kernel_ctx *ctx)
{
	__u64 thread = (__u64)ctx->block_idx[0] * ctx->block_dim[0] + ctx->thread_idx[0];

	return key_of(thread % 64 + (__u32)ctx->args[0]);
}

SEC("gpu/entry/ours_rush")
int rush(struct wbpf_kernel_ctx *ctx)
{
	__u64 n = number(ctx), key = shared_key(ctx);

	if (bpf_map_update_elem(&table, &key, &n, BPF_ANY) == 0)
		note(RUSHED);
	return 0;
}

SEC("gpu/entry/ours_clear")
int clear(struct wbpf_kernel_ctx *ctx)
{
	__u64 key = shared_key(ctx);

	if (bpf_map_delete_elem(&table, &key) == 0)
		note(CLEARED);
	return 0;
}

SEC("gpu/entry/ours_absent")
int absent(struct wbpf_kernel_ctx *ctx)
{
	__u64 key = key_of(number(ctx));

	if (bpf_map_delete_elem(&table, &key) == -2)
		note(ABSENT);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

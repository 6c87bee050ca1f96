// SPDX-License-Identifier: MIT OR Apache-2.0
// Lanes of all warps insert, count and delete the same keys at once.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct key {
	__u32 group;
	__u32 number;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct key);
	__type(value, __u64);
} table SEC(".maps");

/* 0: counted, 1: no room, 2: deleted, 3: delete found nothing */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} results SEC(".maps");

static __always_inline void note(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&results, &what);

	if (n)
		*n += 1;
}

SEC("gpu/entry/*")
int insert(struct wbpf_kernel_ctx *ctx)
{
	struct key key = { 1, (ctx->block_idx[0] * 7 + ctx->thread_idx[0]) % 997 };
	__u64 *n = bpf_map_lookup_elem(&table, &key);

	if (!n) {
		__u64 zero = 0;

		bpf_map_update_elem(&table, &key, &zero, BPF_NOEXIST);
		n = bpf_map_lookup_elem(&table, &key);
	}
	if (!n) {
		note(1);
		return 0;
	}
	*n += 1;
	note(0);
	return 0;
}

/* One key per block: its first thread makes it, its last one takes it away. */
SEC("gpu/exit.block/*")
int remove(struct wbpf_kernel_ctx *ctx)
{
	struct key key = { 2, ctx->block_idx[0] % 256 };
	__u64 one = 1;

	bpf_map_update_elem(&table, &key, &one, BPF_ANY);
	if (bpf_map_delete_elem(&table, &key) == 0)
		note(2);
	else
		note(3);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

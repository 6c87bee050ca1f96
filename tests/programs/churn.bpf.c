// SPDX-License-Identifier: MIT OR Apache-2.0
// Each thread of each launch takes out the key that it put in last and puts in another one, that was never there.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

#define THREADS 256

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, __u64);
} table SEC(".maps");

/* The same with values that do not fit into a slot. */
struct value {
	__u64 w[9];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, struct value);
} large SEC(".maps");

/* The key that each thread has in both, 0 if none. Every other launch is in another stream. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * THREADS);
	__type(key, __u32);
	__type(value, __u64);
} mine SEC(".maps");

/* 0: put in, 1: -EBUSY, 2: another error, 3: taken out, 4: could not be, 5: its value was wrong */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 6);
	__type(key, __u32);
	__type(value, __u64);
} results SEC(".maps");

static __always_inline void note(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&results, &what);

	if (n)
		*n += 1;
}

SEC("gpu/entry/add")
int churn(struct wbpf_kernel_ctx *ctx)
{
	__u32 me = ctx->block_idx[0] * ctx->block_dim[0] + ctx->thread_idx[0] + (ctx->launch_id & 1) * THREADS;
	__u64 *last = bpf_map_lookup_elem(&mine, &me);

	if (!last)
		return 0;

	__u64 old = *last;
	__u64 key = ctx->launch_id << 16 | (me + 1);

	if (old) {
		__u64 *value = bpf_map_lookup_elem(&table, &old);
		struct value *big = bpf_map_lookup_elem(&large, &old);

		if (!value || *value != old * 3 || !big || big->w[0] != old || big->w[8] != old + 8)
			note(5);
		note(bpf_map_delete_elem(&table, &old) ? 4 : 3);
		note(bpf_map_delete_elem(&large, &old) ? 4 : 3);
	}

	__u64 times = key * 3;
	struct value words = { { key, 0, 0, 0, 0, 0, 0, 0, key + 8 } };
	long done = bpf_map_update_elem(&table, &key, &times, BPF_NOEXIST);

	if (!done) {
		done = bpf_map_update_elem(&large, &key, &words, BPF_NOEXIST);
		if (done)
			bpf_map_delete_elem(&table, &key);
	}
	if (!done)
		note(0);
	else if (done == -16)
		note(1);
	else
		note(2);
	*last = done ? 0 : key;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

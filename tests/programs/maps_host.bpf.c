// SPDX-License-Identifier: MIT OR Apache-2.0
// Maps that the user places on the host: a hash that is asked for key by key, and arrays. Run with
// `--map-memory asked=host --map-memory pairs=host --map-memory counts=host`; what comes out is the same where they lie on the device.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

#define KEYS 100
#define ENOENT 2
#define EEXIST 17
#define ETIMEDOUT 110

struct pair {
	__u64 w[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, KEYS);
	__type(key, __u32);
	__type(value, __u64);
} asked SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 17);
	__type(key, __u64);
	__type(value, struct pair);
} pairs SEC(".maps");

enum {
	CALLS,
	TIMED_OUT,
	ADDED,
	NO_VALUE,
	TORN,
	DELETED,
	STRANGE,
	COUNTS,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static void count(__u32 what)
{
	__u64 *value = bpf_map_lookup_elem(&counts, &what);

	if (value)
		*value += 1;
}

// What an operation may say beside 0 and that it ran out of time.
static void said(long error, long possible)
{
	count(CALLS);
	if (error == -ETIMEDOUT)
		count(TIMED_OUT);
	else if (error && error != possible)
		count(STRANGE);
}

SEC("gpu/entry/vectorAdd")
int host(struct wbpf_kernel_ctx *ctx)
{
	__u64 thread = (__u64)ctx->block_idx[0] * ctx->block_dim[0] + ctx->thread_idx[0];
	__u32 key = thread % KEYS;
	__u64 zero = 0;

	// Everybody counts under the same keys.
	said(bpf_map_update_elem(&asked, &key, &zero, BPF_NOEXIST), -EEXIST);
	__u64 *value = bpf_map_lookup_elem(&asked, &key);
	count(CALLS);
	if (value) {
		__sync_fetch_and_add(value, 1);
		count(ADDED);
	} else {
		count(NO_VALUE);
	}
	// No such key.
	__u32 beyond = KEYS + thread % 7;
	said(bpf_map_update_elem(&asked, &beyond, &zero, BPF_EXIST), -ENOENT);

	// Everybody has a key of its own, which it writes, replaces, reads and, every other one, deletes.
	struct pair pair = {{thread, ~thread}};
	said(bpf_map_update_elem(&pairs, &thread, &pair, BPF_NOEXIST), 0);
	pair.w[0] += 1;
	pair.w[1] -= 1;
	said(bpf_map_update_elem(&pairs, &thread, &pair, BPF_ANY), 0);
	struct pair *found = bpf_map_lookup_elem(&pairs, &thread);
	count(CALLS);
	if (!found)
		count(NO_VALUE);
	else if (found->w[0] != thread + 1 || found->w[0] != ~found->w[1])
		count(TORN);
	if (thread % 2) {
		said(bpf_map_delete_elem(&pairs, &thread), 0);
		count(DELETED);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

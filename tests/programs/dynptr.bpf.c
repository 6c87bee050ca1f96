// SPDX-License-Identifier: MIT OR Apache-2.0
// Each thread sends a record of a size of its own by a dynptr, or throws it away, and writes a part of a value through another.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

#define THREADS 10240

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
} events SEC(".maps");

struct words {
	__u32 before;
	__u32 low;
	__u32 high;
	__u32 after;
};

/* By thread. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, THREADS);
	__type(key, __u32);
	__type(value, struct words);
} values SEC(".maps");

/* 0: submitted, 1: discarded, 2: no room, 3: calls that gave what they should */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} results SEC(".maps");

static __always_inline void add(__u32 key, __u64 n)
{
	__u64 *v = bpf_map_lookup_elem(&results, &key);

	if (v)
		__sync_fetch_and_add(v, n);
}

static __always_inline __u64 of_value(__u32 thread)
{
	struct words *words = bpf_map_lookup_elem(&values, &thread);
	__u64 number = thread | (__u64)~thread << 32, back = 0;
	struct bpf_dynptr part;
	__u64 right;

	if (!words)
		return 0;
	right = bpf_dynptr_from_mem((void *)words + 4, 8, 0, &part) == 0;
	right += bpf_dynptr_write(&part, 0, &number, 8, 0) == 0;
	right += bpf_dynptr_write(&part, 1, &number, 8, 0) == -7;
	right += bpf_dynptr_read(&back, 8, &part, 0, 0) == 0 && back == number;
	right += bpf_dynptr_read(&back, 8, &part, 0, 1) == -22 && back == 0;
	right += !bpf_dynptr_data(&part, 8, 1);
	return right;
}

SEC("gpu/entry/*")
int send(struct wbpf_kernel_ctx *ctx)
{
	__u64 thread = (__u64)ctx->block_idx[0] * ctx->block_dim[0] + ctx->thread_idx[0];
	__u32 size = 9 + thread % 50, sent = thread % 5 != 0;
	struct bpf_dynptr ptr;
	__u8 *last;
	long failed;

	add(3, of_value(thread));
	failed = bpf_ringbuf_reserve_dynptr(&events, size, 0, &ptr);
	bpf_dynptr_write(&ptr, 0, &thread, 8, 0);
	last = bpf_dynptr_data(&ptr, size - 1, 1);
	if (last)
		*last = 0xa5;
	if (sent)
		bpf_ringbuf_submit_dynptr(&ptr, 0);
	else
		bpf_ringbuf_discard_dynptr(&ptr, 0);
	add(failed ? 2 : !sent, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

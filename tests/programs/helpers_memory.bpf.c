// SPDX-License-Identifier: MIT OR Apache-2.0
// What helpers read of the application's memory, by each of their names, in `vectoradd`: its first argument points to floats, the element i
// of which is (i % 1000) / 2. And the helpers that leave nothing but a message, a line in a cache, or no record.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

#define EFAULT 14

/* How many threads agreed on each of the checks below. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u64);
} results SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
	__type(value, __u64);
} records SEC(".maps");

static __always_inline void agree(__u32 check, __u64 ok)
{
	__u64 *n = bpf_map_lookup_elem(&results, &check);

	if (n && ok)
		*n += 1;
}

/* Element 1 is 0.5, element 2 is 1.0. */
#define HALF 0x3f000000
#define ONE 0x3f800000

#define NUMBER(read)                                                                                                   \
	({                                                                                                             \
		__u32 pair[2] = {7, 7}, none = 7;                                                                      \
		long there = read(pair, sizeof(pair), (void *)(floats + 4));                                           \
		long nowhere = read(&none, sizeof(none), (void *)8);                                                   \
                                                                                                                       \
		there == 0 && pair[0] == HALF && pair[1] == ONE && nowhere == -EFAULT && none == 0;                    \
	})

/* In memory element 2 is 00 00 80 3f, and element 3, which is 1.5, begins with 00: from the third byte on a string of two. */
#define STRING(read)                                                                                                   \
	({                                                                                                             \
		char text[8] = "unread.", cut[2] = "??", none[4] = "no.", own[8] = "unread.";                          \
		long there = read(text, sizeof(text), (void *)(floats + 8 + 2));                                       \
		long less = read(cut, sizeof(cut), (void *)(floats + 8 + 2));                                          \
		long nowhere = read(none, sizeof(none), (void *)8);                                                    \
		long again = read(own, sizeof(own), text);                                                             \
                                                                                                                       \
		again == 3 && own[0] == (char)0x80 && own[1] == 0x3f && !own[2] && !own[7] &&                          \
			there == 3 && text[0] == (char)0x80 && text[1] == 0x3f && !text[2] && !text[3] && !text[7] &&          \
			less == 2 && cut[0] == (char)0x80 && !cut[1] && nowhere == -EFAULT && !none[0] && !none[3];    \
	})

SEC("gpu/entry/vectorAdd")
int numbers(struct wbpf_kernel_ctx *ctx)
{
	__u64 floats = ctx->args[0];

	agree(0, NUMBER(bpf_probe_read));
	agree(1, NUMBER(bpf_probe_read_user));
	agree(2, NUMBER(bpf_probe_read_kernel));
	return 0;
}

SEC("gpu/entry/vectorAdd")
int strings(struct wbpf_kernel_ctx *ctx)
{
	__u64 floats = ctx->args[0];

	agree(3, STRING(bpf_probe_read_str));
	agree(4, STRING(bpf_probe_read_user_str));
	agree(5, STRING(bpf_probe_read_kernel_str));
	return 0;
}

SEC("gpu/entry/vectorAdd")
int others(struct wbpf_kernel_ctx *ctx)
{
	__u64 thread = (__u64)ctx->block_idx[0] * ctx->block_dim[0] + ctx->thread_idx[0];
	__u64 *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);

	agree(6, bpf_gpu_prefetch_l2((void *)ctx->args[0]) == 0 && bpf_gpu_prefetch_l2((void *)8) == -EFAULT);
	if (thread == 0)
		agree(7, bpf_gpu_puts("a text of its own") > 0);
	if (!record)
		return 0;
	*record = thread;
	/* Every third one is seen. */
	if (thread % 3)
		bpf_ringbuf_discard(record, 0);
	else
		bpf_ringbuf_submit(record, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

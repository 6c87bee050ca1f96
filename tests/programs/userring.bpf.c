// SPDX-License-Identifier: MIT OR Apache-2.0
// Drains records of the host at each load of a kernel that does not end by itself.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct job {
	__u64 number;
	__u64 value;
	__u8 text[8];
};

#ifndef RING
#define RING 4096
#endif

struct {
	__uint(type, BPF_MAP_TYPE_USER_RINGBUF);
	__uint(max_entries, RING);
#ifndef NO_VALUE
	/* What the records are, for `warpbpf maps push`; Linux refuses it. */
	__type(value, struct job);
#endif
} jobs SEC(".maps");

/* [0]: end the kernel, [1]: do not drain */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} control SEC(".maps");

/* 0: records, 1: sum of values, 2: last number, 3: out of order, 4: too short, 5: bytes of text, 6: sum of results */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 7);
	__type(key, __u32);
	__type(value, __u64);
} done SEC(".maps");

static __always_inline void add(__u32 key, __u64 n)
{
	__u64 *v = bpf_map_lookup_elem(&done, &key);

	if (v)
		__sync_fetch_and_add(v, n);
}

static long take(struct bpf_dynptr *sample, void *ctx)
{
	__u32 last = 2;
	__u64 *v, *number = bpf_dynptr_data(sample, 0, 16);
	__u8 text[8];

	add(0, 1);
	if (!number) {
		add(4, 1);
		return 0;
	}
	add(1, number[1]);
	/* One lane drains at a time, so nobody else writes this now. */
	v = bpf_map_lookup_elem(&done, &last);
	if (v) {
		if (*(volatile __u64 *)v + 1 != number[0])
			add(3, 1);
		*(volatile __u64 *)v = number[0];
	}
	if (bpf_dynptr_read(text, sizeof(text), sample, 16, 0) == 0)
		add(5, text[0] + text[7]);
	return 0;
}

SEC("gpu/mem/*spin*|kind=load,size=4")
int spinning(struct wbpf_mem_ctx *ctx)
{
	__u32 zero = 0, one = 1;
	__u32 *flag;
	long n;

	flag = bpf_map_lookup_elem(&control, &one);
	if (flag && !*(volatile __u32 *)flag) {
		n = bpf_user_ringbuf_drain(&jobs, take, 0, 0);
		if (n > 0)
			add(6, n);
	}
	flag = bpf_map_lookup_elem(&control, &zero);
	if (flag && *(volatile __u32 *)flag)
		bpf_gpu_exit();
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

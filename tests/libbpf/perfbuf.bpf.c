// SPDX-License-Identifier: MIT OR Apache-2.0
// Records by bpf_perf_event_output, into a perf event array and into bpftime's ring, 1527.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

static __u64 (*bpf_get_block_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)503;

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
} perf SEC(".maps");

struct {
	__uint(type, 1527);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64[2]);
} records SEC(".maps");

SEC("kprobe/_Z9vectorAddPKfS0_Pfi")
int cuda__enter(void *ctx)
{
	__u64 x, y, z, record[2];

	bpf_get_block_idx(&x, &y, &z);
	record[0] = x;
	record[1] = 7;
	bpf_perf_event_output(ctx, &perf, BPF_F_CURRENT_CPU, record, sizeof(record));
	bpf_perf_event_output(ctx, &records, 0, record, sizeof(record));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs of Linux and of the GPU that count in the same maps, as tools that follow a launch from its call have them.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct record {
	__u32 source;
	__u32 number;
};

/* Of Linux's programs only. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} percpu SEC(".maps");

/* Of both. Key 0: both count. 1: the GPU. 2: Linux. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} hash SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 3);
	__type(key, __u32);
	__type(value, __u64);
} array SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 4);
} samples SEC(".maps");

/* What the tool sets: its own number, the call that is counted, and the one at which Linux looks at what the GPU has counted. */
const volatile __u32 pid, call, look;
/* What it sets while all run. */
__u32 weight = 1;
__u64 gpu, host, together, seen;

static __always_inline void add(void *map, __u32 key)
{
	__u64 zero = 0, *value = bpf_map_lookup_elem(map, &key);

	if (!value) {
		/* Whoever comes second finds the first one's. */
		bpf_map_update_elem(map, &key, &zero, BPF_NOEXIST);
		value = bpf_map_lookup_elem(map, &key);
	}
	if (value)
		__sync_fetch_and_add(value, 1);
}

static __always_inline void tell(void *ctx, __u32 source, __u32 number)
{
	struct record *record = bpf_ringbuf_reserve(&events, sizeof(*record), 0);
	struct record sample = {source, number};

	bpf_perf_event_output(ctx, &samples, BPF_F_CURRENT_CPU, &sample, sizeof(sample));
	if (!record)
		return;
	record->source = source;
	record->number = number;
	bpf_ringbuf_submit(record, 0);
}

SEC("raw_tp/sys_enter")
int on_call(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 first = 1;
	__u64 *counted;

	if (bpf_get_current_pid_tgid() >> 32 != pid)
		return 0;
	if (ctx->args[1] == look) {
		counted = bpf_map_lookup_elem(&array, &first);
		seen = counted ? *counted + gpu : 0;
	}
	if (ctx->args[1] != call)
		return 0;
	add(&calls, 7);
	add(&percpu, 0);
	add(&hash, 0);
	add(&hash, 2);
	add(&array, 0);
	add(&array, 2);
	__sync_fetch_and_add(&host, weight);
	__sync_fetch_and_add(&together, 1);
	tell(ctx, 1, host);
	return 0;
}

SEC("kprobe/_Z9vectorAddPKfS0_Pfi")
int cuda__enter(void *ctx)
{
	add(&hash, 0);
	add(&hash, 1);
	add(&array, 0);
	add(&array, 1);
	__sync_fetch_and_add(&gpu, weight);
	__sync_fetch_and_add(&together, 1);
	tell(ctx, 2, 0);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Where each thread runs, by the helpers for multiprocessor, warp and lane. `HASH` is the type of the maps.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "scheduling.h"

static __u64 (*bpf_get_globaltimer)(void) = (void *)502;
static __u64 (*bpf_get_block_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)503;
static __u64 (*bpf_get_thread_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)505;
static __u64 (*bpf_get_sm_id)(void) = (void *)509;
static __u64 (*bpf_get_warp_id)(void) = (void *)510;
static __u64 (*bpf_get_lane_id)(void) = (void *)511;

struct {
	__uint(type, HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct place);
} thread_mapping SEC(".maps");

struct {
	__uint(type, HASH);
	__uint(max_entries, 512);
	__type(key, __u32);
	__type(value, __u64);
} sm_histogram SEC(".maps");

struct {
	__uint(type, HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, __u64);
} warp_histogram SEC(".maps");

static void count(void *map, __u32 key)
{
	__u64 zero = 0, *value = bpf_map_lookup_elem(map, &key);

	if (!value) {
		// Threads meet here for the first time all at once; whoever comes second finds the first one's.
		bpf_map_update_elem(map, &key, &zero, BPF_NOEXIST);
		value = bpf_map_lookup_elem(map, &key);
	}
	if (value)
		__sync_fetch_and_add(value, 1);
}

SEC("kprobe/_Z9vectorAddPKfS0_Pf")
int cuda__probe_threadscheduling(void)
{
	struct place place = {};
	__u32 key;

	place.sm_id = bpf_get_sm_id();
	place.warp_id = bpf_get_warp_id();
	place.lane_id = bpf_get_lane_id();
	bpf_get_block_idx(&place.block[0], &place.block[1], &place.block[2]);
	bpf_get_thread_idx(&place.thread[0], &place.thread[1], &place.thread[2]);
	place.timestamp = bpf_get_globaltimer();
	key = (place.block[0] << 16) | (place.thread[0] & 0xffff);
	bpf_map_update_elem(&thread_mapping, &key, &place, BPF_ANY);
	count(&sm_histogram, place.sm_id);
	count(&warp_histogram, (place.sm_id << 16) | (place.warp_id & 0xffff));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// How long after the application asked for it a kernel begins, launch by launch: a probe at the entry through which the application
// calls `cudaLaunchKernel` (its procedure linkage table) knows by its own address where the application lies, and so whether it is
// that kernel which is launched; the first thread of the kernel takes the launches in their order. What the clocks
// differ by is known to lie between two bounds, and so is the time.
#define __TARGET_ARCH_x86
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "launchplt.h"

static __u64 (*bpf_get_globaltimer)(void) = (void *)502;
static long (*bpf_get_block_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)503;
static long (*bpf_get_thread_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)505;

#define ARRAY(name, of_type, entries, of)                                                        \
	struct {                                                                                 \
		__uint(type, of_type);                                                           \
		__uint(max_entries, entries);                                                    \
		__type(key, __u32);                                                              \
		__type(value, of);                                                               \
	} name SEC(".maps")

ARRAY(pairs, 1513, PAIRS, struct pair);
ARRAY(clocks, 1513, 1, struct clocks);
ARRAY(histogram, 1503, BINS, __u64);
ARRAY(begun, 1503, BEGUN, __u64);
ARRAY(asked, BPF_MAP_TYPE_ARRAY, ASKED, __u64);
ARRAY(target, BPF_MAP_TYPE_ARRAY, 1, struct target);

static __always_inline void count(void *map, __u32 key)
{
	__u64 *value = bpf_map_lookup_elem(map, &key);

	if (value)
		__sync_fetch_and_add(value, 1);
}

SEC("uprobe")
int BPF_KPROBE(on_launch, const void *function)
{
	struct pair pair = { .asked = bpf_ktime_get_ns() };
	__u64 entry = bpf_get_func_ip(ctx), *launches;
	__u32 first = 0, key = LAUNCHES;
	struct target *file;

	count(&asked, CALLS);
	file = bpf_map_lookup_elem(&target, &first);
	if (!file || !file->known || !entry) {
		count(&asked, NO_TARGET);
		return 0;
	}
	if ((__u64)function != entry - file->entry + file->function)
		return 0;
	launches = bpf_map_lookup_elem(&asked, &key);
	if (!launches)
		return 0;
	pair.number = __sync_fetch_and_add(launches, 1) + 1;
	key = pair.number - 1;
	// An array has no such key.
	count(&asked, bpf_map_update_elem(&pairs, &key, &pair, BPF_ANY) ? FULL : KEPT);
	return 0;
}

static __always_inline __u32 bin_of(__u64 time)
{
	__u64 width = 100;
	__u32 bin = 0;

	for (; bin < BINS - 1 && time >= width; bin++)
		width *= 10;
	return bin;
}

SEC("kprobe/_Z9vectorAddPKfS0_Pf")
int cuda__enter(void)
{
	__u32 key = ENTRIES, low, high;
	struct clocks *apart;
	__u64 x, y, z, *entries;
	struct pair *pair;
	__s64 took;

	bpf_get_block_idx(&x, &y, &z);
	if (x || y || z)
		return 0;
	bpf_get_thread_idx(&x, &y, &z);
	if (x || y || z)
		return 0;
	entries = bpf_map_lookup_elem(&begun, &key);
	if (!entries)
		return 0;
	key = __sync_fetch_and_add(entries, 1);
	pair = bpf_map_lookup_elem(&pairs, &key);
	if (!pair || pair->number != (__u64)key + 1) {
		count(&begun, UNMATCHED);
		return 0;
	}
	count(&begun, MATCHED);
	pair->began = bpf_get_globaltimer();
	key = 0;
	apart = bpf_map_lookup_elem(&clocks, &key);
	if (!apart || !apart->known) {
		count(&begun, WRONG);
		return 0;
	}
	took = pair->began - pair->asked;
	if (took < apart->low) {
		count(&begun, WRONG);
		return 0;
	}
	low = took < apart->high ? 0 : bin_of(took - apart->high);
	high = bin_of(took - apart->low);
	if (low != high) {
		count(&begun, UNSURE);
		return 0;
	}
	count(&begun, SURE);
	count(&histogram, low);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

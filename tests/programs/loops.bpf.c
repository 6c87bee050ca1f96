// SPDX-License-Identifier: MIT OR Apache-2.0
// Every way to go round: callbacks, the macros of `warpbpf.h` over number iterators and `may_goto`, and a field read by
// CO-RE. Each adds a known number for each thread.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "warpbpf.h"

struct pair {
	__u32 first;
	__u32 second;
};

struct counted {
	__u64 unused;
	__u64 sum;
} __attribute__((preserve_access_index));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 10);
	__type(key, __u32);
	__type(value, __u64);
} results SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 3);
	__type(key, __u32);
	__type(value, struct pair);
} pairs SEC(".maps");

const volatile __u32 rounds = 5;

static void add(__u32 key, __u64 n)
{
	__u64 *sum = bpf_map_lookup_elem(&results, &key);

	if (sum)
		__sync_fetch_and_add(sum, n);
}

static long add_index(__u64 index, void *sum)
{
	*(__u64 *)sum += index;
	return index == 3;
}

static long add_key(void *map, const void *key, void *value, void *sum)
{
	struct pair *pair = value;

	*(__u64 *)sum += *(const __u32 *)key + pair->second;
	return 0;
}

/* How often a loop begins. */
static int begin(int *begun)
{
	*begun += 1;
	return 2;
}

SEC("gpu/entry/vectorAdd*")
int loops(void *ctx)
{
	struct counted counted = {};
	__u64 sum = 0, calls;
	int i, j, begun = 0;

	/* 0 + 1 + 2 + 3, and 4 calls of at most 5 */
	calls = bpf_loop(rounds, add_index, &sum, 0);
	add(0, sum * 10 + calls);

	/* keys 0 + 1 + 2, and values that are zero */
	sum = 0;
	calls = bpf_for_each_map_elem(&pairs, add_key, &sum, 0);
	add(1, sum * 10 + calls);

	/* 2 + 3 + 4, whatever the body does to the variable; the bounds are evaluated once: 9 and 1 */
	sum = 0;
	bpf_for(i, begin(&begun), 5) {
		sum += i;
		i = 100;
	}
	add(2, sum * 10 + begun);

	/* 5 rounds but for the third: 0 + 1 + 3 + 4; of 10 rounds 3 before it is left; none at all */
	sum = 0;
	bpf_for(i, 0, rounds) {
		if (i == 2)
			continue;
		sum += i * 10;
	}
	bpf_for(i, 0, 10) {
		if (i == 3)
			break;
		sum += 1;
	}
	bpf_for(i, 4, 4)
		sum += 1000;
	add(3, sum);

	/* one in another: 3 + 2 + 1 pairs */
	sum = 0;
	bpf_for(i, 0, 3)
		bpf_for(j, i, 3)
			sum++;
	add(4, sum);

	/* 5 rounds, and none */
	sum = 0;
	bpf_repeat(rounds)
		sum += 3;
	bpf_repeat(0)
		sum += 1000;
	add(5, sum);

	/* 7 rounds each, though only may_goto bounds them, and 2 * 3 of two in one another */
	sum = 0;
	while (sum != 7 && can_loop)
		sum++;
	add(6, sum);
	sum = 0;
	while (sum != 7) {
		cond_break;
		sum++;
	}
	add(7, sum);
	sum = 0;
	for (i = 0; i < 2 && can_loop; i++)
		bpf_repeat(3) {
			cond_break;
			sum++;
		}
	add(8, sum);

	counted.sum = 3;
	add(9, counted.sum + bpf_core_field_exists(counted.sum) + bpf_core_field_size(counted.sum));
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

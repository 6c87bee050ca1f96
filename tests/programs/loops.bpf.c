// SPDX-License-Identifier: MIT OR Apache-2.0
// Every way to go round: callbacks, a number iterator, a loop that `may_goto` cuts short, and a field read by CO-RE. Each
// adds a known number for each thread. The macros of newer libbpf headers are written out, for the sake of older ones.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

struct bpf_iter_num {
	__u64 state;
} __attribute__((aligned(8)));

extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;

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
	__uint(max_entries, 8);
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
		*sum += n;
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

SEC("gpu/entry/vectorAdd*")
int loops(void *ctx)
{
	struct counted counted = {};
	struct bpf_iter_num it;
	__u64 sum = 0, calls;
	int *number;

	/* 0 + 1 + 2 + 3, and 4 calls of at most 5 */
	calls = bpf_loop(rounds, add_index, &sum, 0);
	add(0, sum * 10 + calls);

	/* keys 0 + 1 + 2, and values that are zero */
	sum = 0;
	calls = bpf_for_each_map_elem(&pairs, add_key, &sum, 0);
	add(1, sum * 10 + calls);

	/* 2 + 3 + 4 */
	sum = 0;
	bpf_iter_num_new(&it, 2, 5);
	while ((number = bpf_iter_num_next(&it)))
		sum += *number;
	bpf_iter_num_destroy(&it);
	add(2, sum);

	/* 7 rounds, though only may_goto bounds them */
	sum = 0;
	while (sum != 7) {
		asm volatile goto("may_goto %l[over]" : : : : over);
		sum++;
	}
over:
	add(3, sum);

	counted.sum = 3;
	add(4, counted.sum + bpf_core_field_exists(counted.sum) + bpf_core_field_size(counted.sum));
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

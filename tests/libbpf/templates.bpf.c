// SPDX-License-Identifier: MIT OR Apache-2.0
// Launches of a kernel that is a template of templates, counted by its first thread, and its threads by all.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

static __u64 (*bpf_get_block_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)503;
static __u64 (*bpf_get_thread_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)505;

struct {
	__uint(type, 1503);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} cutlass_call_count SEC(".maps");

// The kernel's name: 1,871 characters, most of them the numbers 0 to 299 among its template's arguments.
#define NAME(steps)                                                                              \
	"_ZN5tiles6KernelINS_4gemm4GemmINS_9GemmShapeILi16ELi16ELi8EEEffNS_6layout8RowMajorENS5_11ColumnMajorENS_8epilogue"  \
	"17LinearCombinationIfLi1EEESt16integer_sequenceIiJ" steps "EEEEEEvNT_6ParamsE"
#define TEN(t)                                                                                   \
	"Li" t "0ELi" t "1ELi" t "2ELi" t "3ELi" t "4ELi" t "5ELi" t "6ELi" t "7ELi" t "8ELi" t "9E"
#define TENS(t)                                                                                  \
	TEN(t "1") TEN(t "2") TEN(t "3") TEN(t "4") TEN(t "5") TEN(t "6") TEN(t "7") TEN(t "8") TEN(t "9")

SEC("kretprobe/" NAME(TEN("") TENS("") TEN("10") TENS("1") TEN("20") TENS("2")))
int cuda__cutlass_launch(void *ctx)
{
	__u64 tx = 0, ty = 0, tz = 0, bx = 0, by = 0, bz = 0, next = 1, *count;
	__u32 key = 0;

	bpf_get_thread_idx(&tx, &ty, &tz);
	bpf_get_block_idx(&bx, &by, &bz);
	// Launches in one stream follow each other, so one thread of each may read and write back.
	if ((tx | ty | tz | bx | by | bz) == 0) {
		count = bpf_map_lookup_elem(&cutlass_call_count, &key);
		if (count)
			next = *count + 1;
		bpf_map_update_elem(&cutlass_call_count, &key, &next, BPF_ANY);
	}
	key = 1;
	count = bpf_map_lookup_elem(&cutlass_call_count, &key);
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

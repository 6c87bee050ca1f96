// SPDX-License-Identifier: MIT OR Apache-2.0
// bpftime's programs that are kernels themselves, beside its probe of memory. A tool runs them thread by thread with numbers of its
// own; launched as kernels, one after the other, they get theirs from `cuda__fill`.
#define BPF_NO_GLOBAL_DATA
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

static __u64 (*bpf_get_block_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)503;
static __u64 (*bpf_get_block_dim)(__u64 *x, __u64 *y, __u64 *z) = (void *)504;
static __u64 (*bpf_get_thread_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)505;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} runs SEC(".maps");

#define ARRAY(name, entries, of)                                                                 \
	struct {                                                                                 \
		__uint(type, 1503);                                                              \
		__uint(max_entries, entries);                                                    \
		__type(key, __u32);                                                              \
		__type(value, of);                                                               \
	} name SEC(".maps")

ARRAY(vec_A, 1024, __u32);
ARRAY(vec_B, 1024, __u32);
ARRAY(vec_C, 1024, __u32);
ARRAY(vec_N, 1, __u32);
ARRAY(gemm_dims, 1, __u32[3]);
ARRAY(gemm_A, 1024, __s32);
ARRAY(gemm_B, 1024, __s32);
ARRAY(gemm_C, 1024, __s32);

SEC("kprobe/__directly_run")
int cuda__run(void)
{
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&runs, &key);

	if (count)
		__sync_fetch_and_add(count, 1);
	bpf_printk("directly run on GPU\n");
	return 7;
}

// For a block of 32 × 32 threads.
SEC("kprobe/__directly_run")
int cuda__fill(void)
{
	__u32 zero = 0, n = 1000, key, value, dims[3] = { 32, 32, 32 };
	__u64 x, y, z;

	bpf_get_thread_idx(&x, &y, &z);
	key = y * 32 + x;
	bpf_map_update_elem(&vec_N, &zero, &n, BPF_ANY);
	bpf_map_update_elem(&gemm_dims, &zero, dims, BPF_ANY);
	bpf_map_update_elem(&vec_A, &key, &key, BPF_ANY);
	value = 3 * key;
	bpf_map_update_elem(&vec_B, &key, &value, BPF_ANY);
	value = (key % 5) << 16;
	bpf_map_update_elem(&gemm_A, &key, &value, BPF_ANY);
	value = -((key % 3) << 16);
	bpf_map_update_elem(&gemm_B, &key, &value, BPF_ANY);
	return 0;
}

SEC("kprobe/__directly_run")
int cuda__vec_add(void)
{
	__u64 bx, by, bz, dx, dy, dz, tx, ty, tz;
	__u32 key = 0, sum, *n, *a, *b;

	bpf_get_block_idx(&bx, &by, &bz);
	bpf_get_block_dim(&dx, &dy, &dz);
	bpf_get_thread_idx(&tx, &ty, &tz);
	n = bpf_map_lookup_elem(&vec_N, &key);
	key = bx * dx + tx;
	if (!n || key >= *n)
		return 0;
	a = bpf_map_lookup_elem(&vec_A, &key);
	b = bpf_map_lookup_elem(&vec_B, &key);
	sum = (a ? *a : 0) + (b ? *b : 0);
	bpf_map_update_elem(&vec_C, &key, &sum, BPF_ANY);
	return 0;
}

SEC("kprobe/__directly_run")
int cuda__gemm(void)
{
	__u64 bx, by, bz, dx, dy, dz, tx, ty, tz;
	__u32 key = 0, row, column, n, *dims;
	__s64 sum = 0;

	bpf_get_block_idx(&bx, &by, &bz);
	bpf_get_block_dim(&dx, &dy, &dz);
	bpf_get_thread_idx(&tx, &ty, &tz);
	dims = bpf_map_lookup_elem(&gemm_dims, &key);
	if (!dims)
		return 0;
	row = by * dy + ty;
	column = bx * dx + tx;
	n = dims[1];
	if (row >= dims[0] || column >= n)
		return 0;
	// Only the map knows how often.
	for (__u32 k = 0; k < dims[2]; k++) {
		__u32 in_a = row * dims[2] + k, in_b = k * n + column;
		__s32 *a = bpf_map_lookup_elem(&gemm_A, &in_a), *b = bpf_map_lookup_elem(&gemm_B, &in_b);

		sum += (__s64)(a ? *a : 0) * (b ? *b : 0);
	}
	key = row * n + column;
	row = sum >> 16;
	bpf_map_update_elem(&gemm_C, &key, &row, BPF_ANY);
	return 0;
}

// In the application's kernel: more rounds than the budget has.
SEC("kprobe/vectorAdd")
int cuda__walk(void)
{
	__u32 key = 0, sum = 0, *n = bpf_map_lookup_elem(&vec_N, &key);

	for (__u32 k = 0; n && k < *n; k++) {
		sum = (sum ^ k) * 3;
		asm volatile("" : "+r"(sum));
	}
	key = 0;
	bpf_map_update_elem(&vec_C, &key, &sum, BPF_ANY);
	return 0;
}

SEC("kprobe/__memcapture")
int cuda__capture(void)
{
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&runs, &key);

	if (count)
		__sync_fetch_and_add(count, 100000);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

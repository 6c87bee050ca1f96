// SPDX-License-Identifier: MIT OR Apache-2.0
// What kernels and a program on the CPU change together, for an application of which a context ends.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
#include "warpbpf_cuda.h"

struct both {
	__u64 all;
	__u64 calls;
	__u64 threads;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct both);
} counts SEC(".maps");

/* By block; 100 is the calls'. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} keys SEC(".maps");

/* Only kernels and the host change these: a sum, and what is not only added to. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} grids SEC(".maps");

/* Kernels and the program on the CPU store here, no sum. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} marks SEC(".maps");

/* Only the host puts in and takes out. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 2);
	__type(value, __u32);
} orders SEC(".maps");

static __always_inline void add_key(__u32 key)
{
	__u64 none = 0, *n = bpf_map_lookup_elem(&keys, &key);

	if (!n) {
		bpf_map_update_elem(&keys, &key, &none, BPF_NOEXIST);
		n = bpf_map_lookup_elem(&keys, &key);
	}
	if (n)
		__sync_fetch_and_add(n, 1);
}

SEC("gpu/entry/fill*")
int entered(struct wbpf_kernel_ctx *ctx)
{
	__u32 zero = 0;
	struct both *counted = bpf_map_lookup_elem(&counts, &zero);
	__u64 *n = bpf_map_lookup_elem(&threads, &zero), *grid = bpf_map_lookup_elem(&grids, &zero);
	__u64 *mark = bpf_map_lookup_elem(&marks, &zero);

	if (counted) {
		__sync_fetch_and_add(&counted->all, 1);
		__sync_fetch_and_add(&counted->threads, 1);
	}
	if (n)
		__sync_fetch_and_add(n, 1);
	if (grid)
		*grid = ctx->grid_dim[0];
	if (mark)
		*mark = 9;
	add_key(ctx->block_idx[0]);
	return 0;
}

SEC("cuda/cuDeviceGetPCIBusId")
int called(struct wbpf_cuda_ctx *ctx)
{
	__u32 zero = 0;
	struct both *counted = bpf_map_lookup_elem(&counts, &zero);
	__u64 *mark = bpf_map_lookup_elem(&marks, &zero);

	if (counted) {
		__sync_fetch_and_add(&counted->all, 1);
		__sync_fetch_and_add(&counted->calls, 1);
		/* Not any more when kernels have run again. */
		if (mark && counted->calls <= 5)
			*mark = 5;
	}
	add_key(0);
	add_key(100);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/Apache-2.0";

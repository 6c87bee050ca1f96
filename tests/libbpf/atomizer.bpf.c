// SPDX-License-Identifier: MIT OR Apache-2.0
// Lets only a part of a kernel's blocks run, as bpftime's atomizer does: the others end at once.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

static __u64 (*bpf_get_block_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)503;
static __u64 (*bpf_cuda_exit)(void) = (void *)507;
static __u64 (*bpf_get_grid_dim)(__u64 *x, __u64 *y, __u64 *z) = (void *)508;

struct array {
	__uint(type, 1503);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
};
struct array partition_num_map SEC(".maps"), partition_index_map SEC(".maps"), entered SEC(".maps"), exited SEC(".maps");

static void count(void *map)
{
	__u32 key = 0;
	__u64 *value = bpf_map_lookup_elem(map, &key);

	if (value)
		__sync_fetch_and_add(value, 1);
}

SEC("kprobe/_Z9vectorAddPKfS0_Pfi")
int cuda__probe(void)
{
	__u64 x, y, z, gx, gy, gz, blocks, block, low, high, *parts, *part;
	__u32 key = 0;

	bpf_get_block_idx(&x, &y, &z);
	bpf_get_grid_dim(&gx, &gy, &gz);
	blocks = gx * gy * gz;
	block = z * gy * gx + y * gx + x;
	parts = bpf_map_lookup_elem(&partition_num_map, &key);
	part = bpf_map_lookup_elem(&partition_index_map, &key);
	if (!parts || !part || *parts == 0)
		return 0;
	low = blocks * *part / *parts;
	high = blocks * (*part + 1) / *parts;
	if (block < low || block >= high) {
		count(&exited);
		bpf_printk("Exited block_id=%lu, L=%lu, H=%lu", block, low, high);
		bpf_cuda_exit();
		return 0;
	}
	count(&entered);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

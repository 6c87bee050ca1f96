// SPDX-License-Identifier: MIT OR Apache-2.0
// A key for each thread, for a tool that goes through all of them.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

static __u64 (*bpf_get_block_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)503;
static __u64 (*bpf_get_block_dim)(__u64 *x, __u64 *y, __u64 *z) = (void *)504;
static __u64 (*bpf_get_thread_idx)(__u64 *x, __u64 *y, __u64 *z) = (void *)505;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 20);
	__type(key, __u64);
	__type(value, __u64);
} entries SEC(".maps");

SEC("kprobe/_Z11ours_insertjPj")
int cuda__insert(void)
{
	__u64 block[3], dim[3], thread[3], key, value;

	bpf_get_block_idx(&block[0], &block[1], &block[2]);
	bpf_get_block_dim(&dim[0], &dim[1], &dim[2]);
	bpf_get_thread_idx(&thread[0], &thread[1], &thread[2]);
	key = block[0] * dim[0] + thread[0];
	value = 3 * key + 1;
	bpf_map_update_elem(&entries, &key, &value, BPF_ANY);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

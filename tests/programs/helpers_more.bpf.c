// SPDX-License-Identifier: MIT OR Apache-2.0
// Helpers beyond those of helpers.bpf.c: what they say must agree with the context and with each other.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

/* How many threads agreed on each of the checks below. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 10);
	__type(key, __u32);
	__type(value, __u64);
} results SEC(".maps");

/* Lanes, added by the leader of each group. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lanes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} copies SEC(".maps");

/* Values of 12 bytes: copies stand at multiples of 8. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u32[3]);
} hashed SEC(".maps");

static __always_inline void agree(__u32 check, __u64 ok)
{
	__u64 *n = bpf_map_lookup_elem(&results, &check);

	if (n && ok)
		*n += 1;
}

/* 0: the group */
static __always_inline __u64 group(struct wbpf_kernel_ctx *ctx)
{
	__u32 mask = ctx->active_mask, lane = ctx->lane;
	__u64 count = bpf_gpu_warp_sum(1);
	__u64 lowest = bpf_gpu_warp_min(lane), highest = bpf_gpu_warp_max(lane);
	__u64 first = bpf_gpu_warp_first(lane);
	__u64 all = bpf_gpu_warp_or(1ULL << lane << 20), none = bpf_gpu_warp_and(1ULL << 40 | 1ULL << lane);
	__u32 even = bpf_gpu_warp_ballot(!(lane & 1)), same = bpf_gpu_warp_match(lane & 1);
	__u32 half = lane & 1 ? 0xaaaaaaaa : 0x55555555;
	__u64 ok = count == bpf_gpu_warp_lanes();

	ok &= bpf_gpu_warp_size() == 32;
	ok &= first == lowest && highest >= lowest;
	ok &= (mask >> lowest & 1) && (mask >> highest & 1) && !(mask & ((1ULL << lowest) - 1)) && mask >> highest == 1;
	ok &= all == (__u64)mask << 20 && (none >> 32) == 1ULL << 8;
	ok &= even == (mask & 0x55555555) && same == (mask & half);
	ok &= bpf_gpu_warp_leader() == (lane == lowest) && (bpf_gpu_warp_rank() == 0) == (lane == lowest);
	ok &= bpf_gpu_active_mask() >> lane & 1;
	if (bpf_gpu_warp_leader()) {
		__u32 zero = 0;
		__u64 *sum = bpf_map_lookup_elem(&lanes, &zero);

		if (sum)
			*sum += count;
	}
	return ok;
}

/* 1: places */
static __always_inline __u64 places(struct wbpf_kernel_ctx *ctx)
{
	__u64 x, y, z, a, b, c, ok;
	__u64 block = (ctx->block_idx[2] * ctx->grid_dim[1] + ctx->block_idx[1]) * ctx->grid_dim[0] + ctx->block_idx[0];
	__u64 inner = (ctx->thread_idx[2] * ctx->block_dim[1] + ctx->thread_idx[1]) * ctx->block_dim[0] + ctx->thread_idx[0];

	ok = bpf_gpu_block_id() == block;
	ok &= bpf_gpu_thread_id() == block * ctx->block_dim[0] * ctx->block_dim[1] * ctx->block_dim[2] + inner;
	bpf_gpu_cluster_idx(&x, &y, &z);
	bpf_gpu_cluster_dim(&a, &b, &c);
	ok &= x * a <= ctx->block_idx[0] && ctx->block_idx[0] < (x + 1) * a;
	ok &= a == ctx->cluster_dim[0] && b == ctx->cluster_dim[1] && c == ctx->cluster_dim[2];
	bpf_gpu_cluster_count(&x, &y, &z);
	ok &= x * a == ctx->grid_dim[0] && y * b == ctx->grid_dim[1] && z * c == ctx->grid_dim[2];
	bpf_gpu_cluster_block(&x, &y, &z);
	ok &= x < a && y < b && z < c && (z * b + y) * a + x == bpf_gpu_cluster_rank();
	ok &= bpf_gpu_cluster_rank() == ctx->cluster_rank;
	ok &= bpf_gpu_kernel_id() == ctx->kernel_id && bpf_gpu_grid_id() == ctx->grid_id;
	ok &= bpf_gpu_sm_count() >= 1 && !bpf_get_numa_node_id();
	return ok;
}

/* 2: time */
static __always_inline __u64 times(void)
{
	__u64 clock = bpf_gpu_clock(), mono = bpf_ktime_get_ns(), boot = bpf_ktime_get_boot_ns();
	__u64 coarse = bpf_ktime_get_coarse_ns(), tai = bpf_ktime_get_tai_ns();

	return boot >= mono && coarse >= mono && tai > boot && bpf_gpu_clock() != clock;
}

/* 3: a text that is made, and compared */
static __always_inline __u64 texts(struct wbpf_kernel_ctx *ctx)
{
	char text[32];
	long length = BPF_SNPRINTF(text, sizeof(text), "%s%03d|%-6x|%c", 0, 7, 0xbeef, 'z');

	return length == 13 && bpf_strncmp(text, sizeof(text), "007|beef  |z") == 0 &&
	       bpf_strncmp(text, sizeof(text), "007|beef  |y") == 1;
}

/* 4: the application's name, of which programs differ in the end */
static __always_inline __u64 name(void)
{
	char comm[16];

	return bpf_get_current_comm(comm, sizeof(comm)) == 0 && bpf_strncmp(comm, 9, "vectoradd") == 0;
}

/* 5: a string that is nowhere */
static __always_inline __u64 nowhere(void)
{
	char text[8] = "unread";

	return bpf_probe_read_kernel_str(text, sizeof(text), (void *)8) == -14 && !text[0] && !text[5];
}

/* 6: this multiprocessor's copy by its number; 7: one beyond all */
static __always_inline void copy(void)
{
	__u32 zero = 0;
	__u64 *here = bpf_map_lookup_percpu_elem(&copies, &zero, bpf_get_smp_processor_id());

	agree(6, here != 0);
	agree(7, !bpf_map_lookup_percpu_elem(&copies, &zero, 1 << 20));
}

/* 8: the same of a hash, and the copy before or behind it is another one; 9: no copy, and no key */
static __always_inline void hashed_copy(void)
{
	__u32 key = 7, other = 8, own = bpf_get_smp_processor_id();
	__u32 value[3] = {0};
	__u32 *mine, *here, *next;

	bpf_map_update_elem(&hashed, &key, value, BPF_NOEXIST);
	mine = bpf_map_lookup_elem(&hashed, &key);
	here = bpf_map_lookup_percpu_elem(&hashed, &key, own);
	next = bpf_map_lookup_percpu_elem(&hashed, &key, own ? own - 1 : 1);
	if (mine)
		*(volatile __u32 *)&mine[2] = own + 100;
	agree(8, mine && here && *(volatile __u32 *)&here[2] == own + 100 && next && next[2] != own + 100);
	agree(9, !bpf_map_lookup_percpu_elem(&hashed, &key, 1 << 20) && !bpf_map_lookup_percpu_elem(&hashed, &other, own));
}

SEC("gpu/entry/*")
int helpers_more(struct wbpf_kernel_ctx *ctx)
{
	agree(0, group(ctx));
	agree(1, places(ctx));
	agree(2, times());
	agree(3, texts(ctx));
	agree(4, name());
	agree(5, nowhere());
	copy();
	hashed_copy();
	if (ctx->block_idx[0] == 0 && ctx->thread_idx[0] == 0) {
		__u64 ids = bpf_get_current_uid_gid();

		bpf_printk("user %u group %u", (__u32)ids, ids >> 32);
		bpf_printk("%d %i %u %x %llx %c", 1, -2, 3, 0x4a, 0x5ULL << 32, '6');
		bpf_printk("%5s|%-5s|", "in", bpf_get_prandom_u32() | 1 ? "out" : "never");
		bpf_printk("%s of %d: %s, %x %d", "five", 5, ctx->block_dim[0] & 1 ? "odd" : "even", 0xbee, -4);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

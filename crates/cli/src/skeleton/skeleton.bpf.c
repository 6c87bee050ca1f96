// Counts, for each kernel, its launches, and how long its blocks ran.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct blocks {
	__u64 launches;
	__u64 blocks;
	__u64 ns;
};

/* A number of a kernel as the key: tables show the kernel's name. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, wbpf_kernel_id_t);
	__type(value, struct blocks);
} kernels SEC(".maps");

/* When each block began, by its number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u64);
} began SEC(".maps");

/* Once for each block of each kernel: `gpu/PLACE.SCOPE/KERNEL`. `warpbpf sites APP` lists places. */
SEC("gpu/entry.block/*")
int block_begins(struct wbpf_kernel_ctx *ctx)
{
	__u32 block = bpf_gpu_block_id() % 65536;
	__u64 now = bpf_ktime_get_ns();

	bpf_map_update_elem(&began, &block, &now, BPF_ANY);
	return 0;
}

SEC("gpu/exit.block/*")
int block_ends(struct wbpf_kernel_ctx *ctx)
{
	__u32 block = bpf_gpu_block_id() % 65536;
	wbpf_kernel_id_t kernel = ctx->kernel_id;
	__u64 *start = bpf_map_lookup_elem(&began, &block);
	struct blocks none = {}, *sums;

	if (!start)
		return 0;
	bpf_map_update_elem(&kernels, &kernel, &none, BPF_NOEXIST);
	sums = bpf_map_lookup_elem(&kernels, &kernel);
	if (!sums)
		return 0;
	/* `+=` on the value of a map becomes an atomic. */
	sums->launches += bpf_gpu_block_id() == 0;
	sums->blocks += 1;
	sums->ns += bpf_ktime_get_ns() - *start;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// bpftime's array that is shared with the kernel: threads of a GPU's kernel add to one key, the CPU to another. The kernel's name
// has bpftime's prefix for programs beside Linux's, and the function is one of the application's own.
#define BPF_NO_GLOBAL_DATA
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, 1504);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
	__uint(map_flags, BPF_F_MMAPABLE);
} counts SEC(".maps");

static void add(__u32 key)
{
	__u64 *count = bpf_map_lookup_elem(&counts, &key);

	if (count)
		__atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
}

SEC("kretprobe/cuda__Z9vectorAddPKfS0_Pf")
int cuda__leave(void)
{
	add(0);
	return 0;
}

SEC("uretprobe/./vec_add:_Z16cudaLaunchKernelIcE9cudaErrorPT_4dim3S3_PPvmP11CUstream_st")
int on_launched(void *ctx)
{
	bpf_printk("triggered");
	add(1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

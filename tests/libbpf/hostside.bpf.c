// SPDX-License-Identifier: MIT OR Apache-2.0
// A program at a function of Linux, by fentry or as a kprobe, alone in its tool but for one of the GPU.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

const volatile int pid;
__u64 entered, probed, gpu;

SEC("fentry/__x64_sys_getpgid")
int on_entry(void *ctx)
{
	if (bpf_get_current_pid_tgid() >> 32 == pid)
		__sync_fetch_and_add(&entered, 1);
	return 0;
}

SEC("kprobe/__x64_sys_getpgid")
int on_probe(void *ctx)
{
	if (bpf_get_current_pid_tgid() >> 32 == pid)
		__sync_fetch_and_add(&probed, 1);
	return 0;
}

SEC("kprobe/_Z9vectorAddPKfS0_Pfi")
int cuda__enter(void)
{
	__sync_fetch_and_add(&gpu, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

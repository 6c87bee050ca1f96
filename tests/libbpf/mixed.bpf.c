// SPDX-License-Identifier: MIT OR Apache-2.0
// Probes of the host beside one of the GPU, as programs that follow a launch have them.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

__u64 gpu, host;

SEC("kprobe/_Z9vectorAddPKfS0_Pfi")
int probe__gpu(void)
{
	__sync_fetch_and_add(&gpu, 1);
	return 0;
}

SEC("kprobe/do_exit")
int on_exit(void *ctx)
{
	__sync_fetch_and_add(&host, 1);
	return 0;
}

SEC("tracepoint/sched/sched_switch")
int on_switch(void *ctx)
{
	__sync_fetch_and_add(&host, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Probes on the CPU that err: one reads where it may not, one asks for what is not served, one is inside a function.
#define __TARGET_ARCH_x86
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

__u64 begun, ended, inside;

SEC("uprobe")
int reads(struct pt_regs *ctx)
{
	__sync_fetch_and_add(&begun, 1);
	if (*(volatile int *)PT_REGS_PARM1(ctx) != 1)
		__sync_fetch_and_add(&ended, 1);
	__sync_fetch_and_add(&ended, 1);
	return 0;
}

SEC("uprobe")
int asks(void *ctx)
{
	return bpf_get_current_task() != 0;
}

SEC("uprobe")
int is_inside(void *ctx)
{
	__sync_fetch_and_add(&inside, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

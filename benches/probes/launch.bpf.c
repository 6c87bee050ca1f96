// SPDX-License-Identifier: MIT OR Apache-2.0
// The cost of redirecting a launch: a program that does nothing, in one of two kernels.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("gpu/entry/probed")
int at_entry(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

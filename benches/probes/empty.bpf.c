// SPDX-License-Identifier: MIT OR Apache-2.0
// The cost of being there: programs at entry and exit that do nothing.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("gpu/entry/vadd")
int at_entry(void *ctx)
{
	return 0;
}

SEC("gpu/exit/vadd")
int at_exit(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

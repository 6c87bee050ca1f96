// SPDX-License-Identifier: MIT OR Apache-2.0
// Wants a kernel that no application has.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("gpu/entry/noSuchKernel")
int never(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// The cost of being called at the entry of every kernel.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("gpu/entry/*")
int at_entry(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

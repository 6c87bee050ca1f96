// SPDX-License-Identifier: MIT OR Apache-2.0
// The cost of being called at every access of every kernel to global memory: what a counter of bytes (all_bytes.bpf.c) is compared with.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("gpu/mem/*|space=global")
int at_access(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// A function that the driver API does not have.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("cuda/cuMemcpyHtoDasink")
int nowhere(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

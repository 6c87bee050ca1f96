// SPDX-License-Identifier: MIT OR Apache-2.0
// Counts what a kernel stores that does not end by itself. Programs that come into its slots while it runs use the same maps.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
#include "slots.h"

SEC("gpu/mem/*persist*|kind=store,size=8")
int compiled(struct wbpf_mem_ctx *ctx)
{
	return add(0, 1);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

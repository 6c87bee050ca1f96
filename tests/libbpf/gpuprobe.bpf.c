// SPDX-License-Identifier: MIT OR Apache-2.0
// Sections of warpbpf's own in a libbpf program: groups of lanes at a kernel's start, its loads with their sizes, and the threads of
// some of its launches.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

__u64 groups, loads, bytes, chosen;

SEC("gpu/entry.warp/vectorAdd*")
int a_long_name_of_the_entry_probe(void *ctx)
{
	__sync_fetch_and_add(&groups, 1);
	return 0;
}

SEC("gpu/mem/vectorAdd*|kind=load,space=global")
int on_load(struct wbpf_mem_ctx *ctx)
{
	__sync_fetch_and_add(&loads, 1);
	__sync_fetch_and_add(&bytes, ctx->bytes);
	return 0;
}

SEC("gpu/exit/vectorAdd*|every=2,after=1")
int in_some_launches(void *ctx)
{
	__sync_fetch_and_add(&chosen, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

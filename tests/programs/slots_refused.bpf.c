// SPDX-License-Identifier: MIT OR Apache-2.0
// Can be compiled, and cannot run in a slot: it calls a helper that the interpreter on the device does not have.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"
#include "slots.h"

SEC("gpu/mem/*persist*|kind=store,size=8")
int draws(struct wbpf_mem_ctx *ctx)
{
	return add(7, bpf_get_prandom_u32());
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

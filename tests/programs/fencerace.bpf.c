// SPDX-License-Identifier: MIT OR Apache-2.0
// Follows an address whose memory comes and goes while the kernel runs.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

/* 0: read, 1: refused, 2: refused and not zeroed, 3: the slot could not be read, 4: something else */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u64);
} results SEC(".maps");

/* As in fencerace.cu. */
struct slot {
	__u64 address;
	__u32 stop;
	__u32 padding;
};

static __always_inline void note(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&results, &what);

	if (n)
		*n += 1;
}

SEC("gpu/mem/*spin*|kind=load,size=4")
int spinning(struct wbpf_mem_ctx *ctx)
{
	struct slot slot;
	__u64 words[2] = {1, 1};
	long result;

	if (bpf_probe_read_kernel(&slot, sizeof(slot), (void *)ctx->args[0])) {
		note(3);
		return 0;
	}
	result = bpf_probe_read_kernel(words, sizeof(words), (void *)slot.address);
	if (result == 0)
		note(0);
	else if (result == -14)
		note(words[0] == 0 && words[1] == 0 ? 1 : 2);
	else
		note(4);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// SPDX-License-Identifier: MIT OR Apache-2.0
// Counts calls of each process of the machine, whoever it is.
#include "linux.h"

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} calls SEC(".maps");

SEC("raw_tp/sys_enter")
int of_all_callers(struct bpf_raw_tracepoint_args *ctx)
{
	if (ctx->args[1] == call)
		add(&calls, bpf_get_current_pid_tgid() >> 32);
	return 0;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
// Counts calls of each process of the machine, whoever it is.
#include "linux.h"

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} calls SEC(".maps");

/* The same, and beside it at 0 threads of all kernels. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} both SEC(".maps");

SEC("raw_tp/sys_enter")
int of_all_callers(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;

	if (ctx->args[1] == call) {
		add(&calls, pid);
		add(&both, pid);
	}
	return 0;
}

SEC("gpu/entry/work*")
int of_all_threads(void *ctx)
{
	add(&both, 0);
	return 0;
}

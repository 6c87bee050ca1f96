// SPDX-License-Identifier: MIT OR Apache-2.0
// At a typed tracepoint, with a field of the running kernel's own types.
#include "linux.h"

struct task_struct {
	int tgid;
} __attribute__((preserve_access_index));

SEC("tp_btf/sys_enter")
int on_call(__u64 *ctx)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();

	if (task->tgid == wbpf_app_pid && ctx[1] == call)
		add(&array, 2);
	return 0;
}

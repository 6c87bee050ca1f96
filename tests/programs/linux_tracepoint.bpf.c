// SPDX-License-Identifier: MIT OR Apache-2.0
// At a tracepoint of Linux, which there must be a tracefs for.
#include "linux.h"

SEC("tracepoint/syscalls/sys_enter_getpgid")
int on_call(void *ctx)
{
	if (of_app())
		add(&array, 2);
	return 0;
}

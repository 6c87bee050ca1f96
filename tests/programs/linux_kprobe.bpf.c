// SPDX-License-Identifier: MIT OR Apache-2.0
// At both ends of a function of Linux, by probes.
#include "linux.h"

SEC("kprobe/do_getpgid")
int on_enter(void *ctx)
{
	if (of_app())
		add(&array, 2);
	return 0;
}

SEC("kretprobe/do_getpgid")
int on_leave(void *ctx)
{
	if (of_app())
		add(&array, 0);
	return 0;
}

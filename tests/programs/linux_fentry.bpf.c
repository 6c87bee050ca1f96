// SPDX-License-Identifier: MIT OR Apache-2.0
// At both ends of a function of Linux.
#include "linux.h"

SEC("fentry/do_getpgid")
int on_enter(void *ctx)
{
	if (of_app())
		add(&array, 2);
	return 0;
}

SEC("fexit/do_getpgid")
int on_leave(void *ctx)
{
	if (of_app())
		add(&array, 0);
	return 0;
}

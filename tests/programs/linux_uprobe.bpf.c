// SPDX-License-Identifier: MIT OR Apache-2.0
// At both ends of a function of libc, in whatever process.
#include "linux.h"

#ifdef __aarch64__
#define LIBC "/lib/aarch64-linux-gnu/libc.so.6"
#else
#define LIBC "/lib/x86_64-linux-gnu/libc.so.6"
#endif

SEC("uprobe.k/" LIBC ":getpgid")
int on_enter(void *ctx)
{
	if (of_app())
		add(&array, 2);
	return 0;
}

SEC("uretprobe.k/" LIBC ":getpgid")
int on_leave(void *ctx)
{
	if (of_app())
		add(&array, 0);
	return 0;
}

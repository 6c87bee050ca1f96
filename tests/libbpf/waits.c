// SPDX-License-Identifier: MIT OR Apache-2.0
// A library by the CUDA driver's name that is none, with a thread that waits all the time, as the driver's do.
#include <poll.h>
#include <pthread.h>
#include <stddef.h>

static void *wait_always(void *nothing)
{
	for (;;)
		poll(NULL, 0, 1);
	return nothing;
}

int wait_beside(void)
{
	pthread_t thread;

	return pthread_create(&thread, NULL, wait_always, NULL);
}

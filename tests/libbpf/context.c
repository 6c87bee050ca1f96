// SPDX-License-Identifier: MIT OR Apache-2.0
// usage: context first|later|other LIBRARY: uses the CUDA driver itself, and says at each step whether it has a context; `first`: maps of
// bpftime's GPU types are there before the driver; `other`: so they are, and before the driver it tries the library, which has its name alone. Then it shows each round what it has counted, as a tool that knows no signal, while a library beside it
// waits all the time.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <time.h>
#include "tool.h"
#include "context.skel.h"

#define DRIVER "libcuda.so.1"
#define GPU_ARRAY 1503

static void *driver;

static int make_gpu_map(void)
{
	return bpf_map_create(GPU_ARRAY, "of_gpu", sizeof(uint32_t), sizeof(uint64_t), 1, NULL);
}

static void *current(void)
{
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
	int (*get)(void **) = (int (*)(void **))dlsym(driver, "cuCtxGetCurrent");
	void *context = NULL;

	if (!init || !get || init(0) || get(&context))
		fprintf(stderr, "the driver does not say what is current\n");
	return context;
}

static void show(const char *step)
{
	printf("%s: %s\n", step, current() ? "a context" : "none");
}

static void on_alarm(int signal)
{
	(void)signal;
}

// Every function by which a tool can wait does as libc's.
static int wait_in_all_ways(void)
{
	struct timespec moment = { .tv_nsec = 1000000 }, rest, before, after;
	struct timeval value = { .tv_usec = 1000 };
	struct itimerval often = { { .tv_usec = 50000 }, { .tv_usec = 50000 } }, never = {};
	struct epoll_event events[2];
	int pipe_of[2], epoll = epoll_create1(0);
	struct pollfd polled;
	sigset_t none;
	fd_set read;

	sigemptyset(&none);
	MUST(epoll >= 0 && pipe(pipe_of) == 0, "pipe");
	polled = (struct pollfd){ .fd = pipe_of[0], .events = POLLIN };
	events[0] = (struct epoll_event){ .events = EPOLLIN, .data.u64 = 0x123456789 };
	MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, pipe_of[0], &events[0]) == 0, "epoll_ctl");
	clock_gettime(CLOCK_MONOTONIC, &before);
	for (int ready = 0; ready < 2; ready++) {
		events[0].data.u64 = 0;
		MUST(epoll_wait(epoll, events, 2, 1) == ready, "epoll_wait");
		MUST(events[0].data.u64 == (ready ? 0x123456789 : 0), "event");
		MUST(epoll_pwait(epoll, events, 2, 1, &none) == ready, "epoll_pwait");
		MUST(poll(&polled, 1, 1) == ready, "poll");
		MUST(ppoll(&polled, 1, &moment, &none) == ready, "ppoll");
		FD_ZERO(&read);
		FD_SET(pipe_of[0], &read);
		MUST(select(pipe_of[0] + 1, &read, NULL, NULL, &value) == ready, "select");
		MUST(!FD_ISSET(pipe_of[0], &read) == !ready, "FD_ISSET");
		MUST(write(pipe_of[1], "x", 1) == 1, "write");
	}
	MUST(sleep(0) == 0 && usleep(1000) == 0, "sleep");
	MUST(nanosleep(&moment, &rest) == 0, "nanosleep");
	MUST(clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, &rest) == 0, "clock_nanosleep");
	// Nine waits of a millisecond each.
	clock_gettime(CLOCK_MONOTONIC, &after);
	MUST((after.tv_sec - before.tv_sec) * 1000000000LL + after.tv_nsec - before.tv_nsec >= 8000000, "time");
	MUST(epoll_wait(-1, events, 2, 0) == -1 && errno == EBADF, "epoll_wait of nothing");
	MUST(clock_nanosleep(12345, 0, &moment, &rest) == EINVAL, "clock_nanosleep by no clock");
	signal(SIGALRM, on_alarm);
	// Again and again: one signal alone could come before the wait begins.
	setitimer(ITIMER_REAL, &often, NULL);
	MUST(pause() == -1 && errno == EINTR, "pause");
	MUST(sleep(100) >= 98, "sleep until a signal");
	setitimer(ITIMER_REAL, &never, NULL);
	return 0;
}

int main(int argc, char **argv)
{
	int first = argc > 2 && strcmp(argv[1], "later"), (*set)(void *), (*wait_beside)(void);
	void *library;
	struct context_bpf *skel;
	uint32_t key = 0;
	uint64_t threads;

	begin();
	signal(SIGINT, SIG_DFL);
	MUST(argc > 2, "usage: context first|later|other LIBRARY");
	skel = context_bpf__open_and_load();
	MUST(skel, "load");
	if (first) {
		MUST(make_gpu_map() >= 0, "map");
		printf("asked: %s\n", dlopen(DRIVER, RTLD_NOW | RTLD_NOLOAD) ? "loaded" : "not loaded");
		if (!strcmp(argv[1], "other"))
			MUST(dlopen(argv[2], RTLD_NOW), argv[2]);
	}
	driver = dlopen(DRIVER, RTLD_NOW);
	MUST(driver, "driver");
	show("loaded");
	if (!first) {
		MUST(bpf_map_create(BPF_MAP_TYPE_ARRAY, "of_linux", sizeof(uint32_t), sizeof(uint64_t), 1, NULL) >= 0, "map");
		show("an array");
		MUST(make_gpu_map() >= 0, "map");
		show("a map");
	}
	set = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
	MUST(set && set(NULL) == 0, "set");
	MUST(make_gpu_map() >= 0, "map");
	MUST(dlopen(DRIVER, RTLD_NOW), "driver");
	show("put away");
	if (wait_in_all_ways())
		return 1;
	library = dlopen(argv[2], RTLD_NOW);
	MUST(library, argv[2]);
	wait_beside = (int (*)(void))dlsym(library, "wait_beside");
	MUST(wait_beside && wait_beside() == 0, "thread");
	MUST(context_bpf__attach(skel) == 0, "attach");
	for (;;) {
		usleep(700000);
		MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.threads), &key, &threads) == 0, "lookup");
		printf("threads %lu\n", threads);
	}
}

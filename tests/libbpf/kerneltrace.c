// SPDX-License-Identifier: MIT OR Apache-2.0
// Takes a kernel's events by bpftime's function, and checks that each thread has its own.
#define _GNU_SOURCE
#include <dlfcn.h>
#include "tool.h"
#include "kerneltrace.h"
#include "kerneltrace.skel.h"

typedef int poll_records(int fd, void *context, void (*take)(const void *, uint64_t, void *));

static unsigned long total, strange, of_thread[4][256];

static void on_event(const void *data, uint64_t size, void *context)
{
	const struct event *event = data;

	(void)context;
	total++;
	if (size != sizeof(*event) || !event->time || event->block[0] >= 4 || event->thread[0] >= 256 ||
	    event->block[1] + event->block[2] + event->thread[1] + event->thread[2] != 0)
		strange++;
	else
		of_thread[event->block[0]][event->thread[0]]++;
}

int main(void)
{
	struct kerneltrace_bpf *skel;
	poll_records *poll = (poll_records *)dlsym(RTLD_DEFAULT, "bpftime_syscall_server__poll_gpu_ringbuf_map");

	begin();
	skel = kerneltrace_bpf__open_and_load();
	MUST(skel && poll, "load");
	MUST(kerneltrace_bpf__attach(skel) == 0, "attach");
	while (!exiting) {
		if (poll(bpf_map__fd(skel->maps.events), NULL, on_event) < 0)
			return 1;
		usleep(1000);
	}
	for (int block = 0; block < 4; block++)
		for (int thread = 0; thread < 256; thread++)
			strange += of_thread[block][thread] != 3;
	printf("total events: %lu, strange %lu\n", total, strange);
	kerneltrace_bpf__destroy(skel);
	return 0;
}

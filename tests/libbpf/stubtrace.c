// SPDX-License-Identifier: MIT OR Apache-2.0
// usage: stubtrace BLOCKS RECORDS: each block's first thread must call the stub so often, and no other thread makes a record
#define _GNU_SOURCE
#include <dlfcn.h>
#include "tool.h"
#include "stubtrace.h"
#include "stubtrace.skel.h"

#define BLOCKS 1024

typedef int poll_records(int fd, void *context, void (*take)(const void *, uint64_t, void *));

static unsigned long total, strange, of_block[BLOCKS];

static void on_event(const void *data, uint64_t size, void *context)
{
	const struct event *event = data;

	(void)context;
	total++;
	if (size != sizeof(*event) || !event->time || event->block[0] >= BLOCKS ||
	    event->block[1] + event->block[2] + event->thread[0] + event->thread[1] + event->thread[2] != 0)
		strange++;
	else
		of_block[event->block[0]]++;
}

int main(int argc, char **argv)
{
	unsigned long blocks = argc > 1 ? strtoul(argv[1], NULL, 10) : 0, records = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
	poll_records *poll = (poll_records *)dlsym(RTLD_DEFAULT, "bpftime_syscall_server__poll_gpu_ringbuf_map");
	struct stubtrace_bpf *skel;

	begin();
	skel = stubtrace_bpf__open_and_load();
	MUST(skel && poll, "load");
	MUST(stubtrace_bpf__attach(skel) == 0, "attach");
	while (!exiting) {
		if (poll(bpf_map__fd(skel->maps.events), NULL, on_event) < 0)
			return 1;
		usleep(1000);
	}
	for (unsigned long block = 0; block < BLOCKS; block++)
		strange += of_block[block] != (block < blocks ? records : 0);
	printf("total events: %lu, calls %lu, strange %lu\n", total, (unsigned long)skel->bss->calls, strange);
	stubtrace_bpf__destroy(skel);
	return 0;
}

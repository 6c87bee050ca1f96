// SPDX-License-Identifier: MIT OR Apache-2.0
// Prints each record that bpftime's function hands out, and how many there were.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/types.h>
#include "tool.h"
#include "kernelretsnoop.h"
#include "kernelretsnoop.skel.h"

typedef int poll_records(int fd, void *context, void (*take)(const void *, uint64_t, void *));

static void on_record(const void *data, uint64_t size, void *context)
{
	const struct left *left = data;

	if (size != sizeof(*left) || left->block_y | left->block_z | left->thread_y | left->thread_z)
		printf("strange record of %lu bytes\n", size);
	printf("Thread (%llu, %llu) timestamp: %llu\n", left->block_x, left->thread_x, left->timestamp);
	*(uint64_t *)context += 1;
}

int main(void)
{
	poll_records *poll = (poll_records *)dlsym(RTLD_DEFAULT, "bpftime_syscall_server__poll_gpu_ringbuf_map");
	struct kernelretsnoop_bpf *skel;
	uint64_t total = 0;

	begin();
	skel = kernelretsnoop_bpf__open_and_load();
	MUST(skel && poll, "load");
	MUST(kernelretsnoop_bpf__attach(skel) == 0, "attach");
	while (!exiting) {
		if (poll(bpf_map__fd(skel->maps.rb), &total, on_record) < 0)
			return 1;
		usleep(10000);
	}
	printf("Total events collected: %lu\n", total);
	kernelretsnoop_bpf__destroy(skel);
	return 0;
}

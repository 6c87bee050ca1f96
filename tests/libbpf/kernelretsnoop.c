// SPDX-License-Identifier: MIT OR Apache-2.0
// Prints each record that bpftime's function hands out, and how many there were.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/types.h>
#include "tool.h"
#include "kernelretsnoop.h"
#include "kernelretsnoop.skel.h"

// As bpftime's `bpftime_gpu_ringbuf.h` has it.
struct stats {
	uint64_t value_size, entries_per_thread, allocated_thread_slots;
	uint64_t committed_records, collected_records, pending_records;
	uint64_t oob_drops, full_drops, bad_size_drops, other_drops, dirty_slots;
};

typedef int get_stats(int fd, struct stats *stats);
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
	get_stats *get = (get_stats *)dlsym(RTLD_DEFAULT, "bpftime_syscall_server__get_gpu_ringbuf_stats");
	struct kernelretsnoop_bpf *skel;
	struct stats stats;
	uint64_t total = 0;

	begin();
	skel = kernelretsnoop_bpf__open_and_load();
	MUST(skel && poll && get, "load");
	MUST(kernelretsnoop_bpf__attach(skel) == 0, "attach");
	while (!exiting) {
		if (poll(bpf_map__fd(skel->maps.rb), &total, on_record) < 0)
			return 1;
		usleep(10000);
	}
	MUST(get(bpf_map__fd(skel->maps.rb), &stats) == 0, "stats");
	MUST(get(bpf_program__fd(skel->progs.cuda__retprobe), &stats) == -EINVAL, "stats of a program");
	MUST(get(bpf_map__fd(skel->maps.rb), NULL) == -EINVAL, "stats into nothing");
	printf("%lu of %lu bytes in %lu slots for %lu threads: %lu collected, %lu pending, %lu lost\n", stats.committed_records,
	       stats.value_size, stats.entries_per_thread, stats.allocated_thread_slots, stats.collected_records,
	       stats.pending_records,
	       stats.oob_drops + stats.full_drops + stats.bad_size_drops + stats.other_drops + stats.dirty_slots);
	printf("Total events collected: %lu\n", total);
	kernelretsnoop_bpf__destroy(skel);
	return 0;
}

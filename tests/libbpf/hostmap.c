// SPDX-License-Identifier: MIT OR Apache-2.0
// Shows what each key holds, of as many threads as BPFTIME_MAP_GPU_THREAD_COUNT says: usage: hostmap THREADS
#include "tool.h"
#include "hostmap.skel.h"

#define MOST 1024
#define BEHIND 0x5a5a5a5a5a5a5a5aull

static uint64_t values[MOST + 1];

int main(int argc, char **argv)
{
	static const char *const names[] = { "call_count", "exec_time", "thread_id" };
	struct hostmap_bpf *skel;
	int of = argc > 1 ? atoi(argv[1]) : MOST;
	uint64_t shared;

	begin();
	MUST(of >= 0 && of <= MOST, "threads");
	skel = hostmap_bpf__open_and_load();
	MUST(skel, "load");
	MUST(hostmap_bpf__attach(skel) == 0, "attach");
	while (!exiting)
		usleep(50000);
	for (uint32_t key = 0; key < 3; key++) {
		uint64_t total = 0, threads = 0;

		values[of] = BEHIND;
		MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.perthread_counter), &key, values) == 0, "lookup");
		MUST(values[of] == BEHIND, "more values than threads");
		for (int i = 0; i < of; i++) {
			total += values[i];
			threads += values[i] != 0;
		}
		// How long it took is different each time, whether it took any time is not.
		printf("key=%u (%s): total=%lu (from %lu threads)\n", key, names[key], key == 1 ? total > 0 : total,
		       key == 1 ? threads > 0 : threads);
	}
	for (uint32_t key = 0; key < 10; key++) {
		MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.shared_counter), &key, &shared) == 0, "lookup");
		printf("shared[%u]=%lu\n", key, shared);
	}
	hostmap_bpf__destroy(skel);
	return 0;
}

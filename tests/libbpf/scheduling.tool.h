// SPDX-License-Identifier: MIT OR Apache-2.0
// Shows how threads were spread over multiprocessors and warps. `OBJECT(name)` is a name of the skeleton's.
#include "tool.h"
#include "scheduling.h"

#define SMS 512

// How evenly threads are spread over the multiprocessors up to the last that has any, in tenths of a percent: all on one of many
// gives about 500, as many on each 1000.
static unsigned score(const uint64_t *threads)
{
	uint64_t total = 0, off = 0, used = 0, even;

	for (uint32_t sm = 0; sm < SMS; sm++) {
		total += threads[sm];
		used = threads[sm] ? sm + 1 : used;
	}
	if (!total)
		return 0;
	even = total / used;
	for (uint32_t sm = 0; sm < used; sm++)
		off += threads[sm] > even ? threads[sm] - even : even - threads[sm];
	return 1000 - 1000 * off / (2 * total);
}

// How many threads have been counted, for whoever asks while applications run.
static void answer(int map)
{
	uint64_t value, total = 0;
	uint32_t key, *before = NULL;

	// A copy of the device's memory may be as old as this.
	usleep(110000);
	for (; bpf_map_get_next_key(map, before, &key) == 0; before = &key)
		if (bpf_map_lookup_elem(map, &key, &value) == 0)
			total += value;
	printf("so far %lu\n", total);
}

int main(int argc, char **argv)
{
	// Of one launch each thread's place is there still, so that the histogram can be told from them.
	int launches = argc > 1 ? atoi(argv[1]) : 3;
	static uint64_t of_map[SMS], of_places[SMS];
	struct OBJECT(bpf) *skel;
	struct place place;
	uint32_t key, *before = NULL, threads = 0, strange = 0;
	uint64_t value, total = 0, of_warps = 0;
	int fd;

	begin();
	skel = OBJECT(bpf__open_and_load)();
	MUST(skel, "load");
	MUST(OBJECT(bpf__attach)(skel) == 0, "attach");
	printf("mapping probe started\n");
	while (!exiting) {
		usleep(50000);
		if (asked) {
			asked = 0;
			answer(bpf_map__fd(skel->maps.sm_histogram));
		}
	}
	fd = bpf_map__fd(skel->maps.thread_mapping);
	for (; bpf_map_get_next_key(fd, before, &key) == 0; before = &key) {
		MUST(bpf_map_lookup_elem(fd, &key, &place) == 0, "lookup");
		threads++;
		strange += place.block[0] != key >> 16 || place.thread[0] != (key & 0xffff);
		strange += place.lane_id != place.thread[0] % 32 || !place.timestamp;
		MUST(place.sm_id < SMS, "multiprocessor");
		of_places[place.sm_id]++;
	}
	fd = bpf_map__fd(skel->maps.warp_histogram);
	for (before = NULL; bpf_map_get_next_key(fd, before, &key) == 0; before = &key) {
		MUST(bpf_map_lookup_elem(fd, &key, &value) == 0, "lookup");
		of_warps += value;
	}
	fd = bpf_map__fd(skel->maps.sm_histogram);
	for (before = NULL; bpf_map_get_next_key(fd, before, &key) == 0; before = &key) {
		MUST(bpf_map_lookup_elem(fd, &key, &value) == 0 && key < SMS, "lookup");
		of_map[key] = value;
		total += value;
	}
	printf("SM Utilization Histogram\n");
	for (uint32_t sm = 0; sm < SMS; sm++) {
		if (of_map[sm])
			printf("  SM %u: %lu threads\n", sm, of_map[sm]);
		strange += launches == 1 && of_map[sm] != of_places[sm];
	}
	printf("Load Balance Score: %u, of the last places %u\n", score(of_map), score(of_places));
	printf("threads %u, calls %lu, of warps %lu, strange %u\n", threads, total, of_warps, strange);
	OBJECT(bpf__destroy)(skel);
	return 0;
}

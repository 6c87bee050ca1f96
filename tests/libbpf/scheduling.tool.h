// SPDX-License-Identifier: MIT OR Apache-2.0
// Shows how threads were spread over multiprocessors and warps. `OBJECT(name)` is a name of the skeleton's.
#include "tool.h"
#include "scheduling.h"

// The sum over a histogram; how many keys it has and the largest count go where the caller says.
static uint64_t sum(int fd, uint32_t *keys, uint64_t *largest)
{
	uint32_t key, *before = NULL;
	uint64_t value, total = 0;

	*keys = 0;
	*largest = 0;
	for (; bpf_map_get_next_key(fd, before, &key) == 0; before = &key) {
		if (bpf_map_lookup_elem(fd, &key, &value))
			continue;
		total += value;
		*keys += 1;
		*largest = value > *largest ? value : *largest;
	}
	return total;
}

int main(void)
{
	struct OBJECT(bpf) *skel;
	struct place place;
	uint32_t key, *before = NULL, sms, warps, threads = 0, strange = 0;
	uint64_t largest, total, of_warps;
	int fd;

	begin();
	skel = OBJECT(bpf__open_and_load)();
	MUST(skel, "load");
	MUST(OBJECT(bpf__attach)(skel) == 0, "attach");
	printf("mapping probe started\n");
	while (!exiting)
		usleep(50000);
	fd = bpf_map__fd(skel->maps.thread_mapping);
	for (; bpf_map_get_next_key(fd, before, &key) == 0; before = &key) {
		MUST(bpf_map_lookup_elem(fd, &key, &place) == 0, "lookup");
		threads++;
		strange += place.block[0] != key >> 16 || place.thread[0] != (key & 0xffff);
		strange += place.lane_id != place.thread[0] % 32 || !place.timestamp;
	}
	of_warps = sum(bpf_map__fd(skel->maps.warp_histogram), &warps, &largest);
	total = sum(bpf_map__fd(skel->maps.sm_histogram), &sms, &largest);
	MUST(sms, "no multiprocessor");
	printf("SM Utilization Histogram: %s, Load Balance Score %s\n", sms <= warps ? "filled" : "strange",
	       total * 100 / sms / largest <= 100 ? "at most 100" : "strange");
	printf("threads %u, calls %lu, of warps %lu, strange %u\n", threads, total, of_warps, strange);
	OBJECT(bpf__destroy)(skel);
	return 0;
}

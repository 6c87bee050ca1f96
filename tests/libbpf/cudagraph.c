// SPDX-License-Identifier: MIT OR Apache-2.0
// Shows how often a kernel in a graph was called, at the end.
#include "tool.h"
#include "cudagraph.skel.h"

static uint64_t sum_of(int fd)
{
	uint32_t key, *before = NULL;
	uint64_t value, sum = 0;

	while (bpf_map_get_next_key(fd, before, &key) == 0) {
		if (key && bpf_map_lookup_elem(fd, &key, &value) == 0)
			sum += value;
		before = &key;
	}
	return sum;
}

int main(void)
{
	struct cudagraph_bpf *skel;

	begin();
	skel = cudagraph_bpf__open_and_load();
	MUST(skel, "load");
	MUST(cudagraph_bpf__attach(skel) == 0, "attach");
	while (!exiting)
		usleep(50000);
	// How long it took is different each time, whether it took any time is not.
	printf("calls: %lu, entered and not left: %d, timed: %d\n", sum_of(bpf_map__fd(skel->maps.call_count)),
	       sum_of(bpf_map__fd(skel->maps.start_ts)) > 0, sum_of(bpf_map__fd(skel->maps.total_time_ns)) > 0);
	cudagraph_bpf__destroy(skel);
	return 0;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
// Shows the counts of the first threads; one lookup gives the values of all.
#include "tool.h"
#include "perthread.skel.h"

static uint64_t values[1024];

int main(void)
{
	struct perthread_bpf *skel;
	uint64_t sum = 0;
	uint32_t key = 0;

	begin();
	skel = perthread_bpf__open_and_load();
	MUST(skel, "load");
	MUST(perthread_bpf__attach(skel) == 0, "attach");
	while (!exiting)
		usleep(50000);
	MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.counts), &key, values) == 0, "lookup");
	for (int i = 0; i < 1024; i++)
		sum += values[i];
	for (int i = 0; i < 3; i++)
		printf("Thread %d: %lu\n", i, values[i]);
	printf("sum of 1024: %lu\n", sum);
	perthread_bpf__destroy(skel);
	return 0;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
// Shows how many accesses there were.
#include "tool.h"
#include "memtrace.skel.h"

int main(void)
{
	struct memtrace_bpf *skel;
	uint64_t value;

	begin();
	skel = memtrace_bpf__open_and_load();
	MUST(skel, "load");
	MUST(memtrace_bpf__attach(skel) == 0, "attach");
	while (!exiting)
		usleep(50000);
	for (uint32_t key = 0; key < 2; key++) {
		MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.counter), &key, &value) == 0, "lookup");
		printf("counter[%u]=%lu\n", key, value);
	}
	memtrace_bpf__destroy(skel);
	return 0;
}

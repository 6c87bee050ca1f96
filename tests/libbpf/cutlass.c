// SPDX-License-Identifier: MIT OR Apache-2.0
// Shows how often the kernel was launched, and by how many threads.
#include "tool.h"
#include "cutlass.skel.h"

int main(void)
{
	struct cutlass_bpf *skel;
	uint64_t values[2];

	begin();
	skel = cutlass_bpf__open_and_load();
	MUST(skel, "load");
	MUST(cutlass_bpf__attach(skel) == 0, "attach");
	while (!exiting)
		usleep(50000);
	for (uint32_t key = 0; key < 2; key++)
		MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.cutlass_call_count), &key, &values[key]) == 0, "lookup");
	printf("CUTLASS launches: %lu, threads %lu\n", values[0], values[1]);
	cutlass_bpf__destroy(skel);
	return 0;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
// Shows how often the kernel was launched.
#include "tool.h"
#include "templates.skel.h"

int main(void)
{
	struct templates_bpf *skel;
	uint64_t values[2];

	begin();
	skel = templates_bpf__open_and_load();
	MUST(skel, "load");
	MUST(templates_bpf__attach(skel) == 0, "attach");
	while (!exiting)
		usleep(50000);
	for (uint32_t key = 0; key < 2; key++)
		MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.cutlass_call_count), &key, &values[key]) == 0, "lookup");
	printf("CUTLASS launches: %lu, threads %lu\n", values[0], values[1]);
	templates_bpf__destroy(skel);
	return 0;
}

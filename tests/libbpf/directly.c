// SPDX-License-Identifier: MIT OR Apache-2.0
// Attaches bpftime's two names that are no kernels'.
#include "tool.h"
#include "directly.skel.h"

int main(void)
{
	struct directly_bpf *skel;
	uint64_t runs;
	uint32_t key = 0;

	begin();
	skel = directly_bpf__open_and_load();
	MUST(skel, "load");
	MUST(directly_bpf__attach(skel) == 0, "attach");
	while (!exiting)
		usleep(50000);
	MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.runs), &key, &runs) == 0, "lookup");
	printf("accesses %lu, runs %lu\n", runs / 100000, runs % 100000);
	directly_bpf__destroy(skel);
	return 0;
}

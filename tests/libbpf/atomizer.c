// SPDX-License-Identifier: MIT OR Apache-2.0
// usage: atomizer PARTS PART
#include "tool.h"
#include "atomizer.skel.h"

int main(int argc, char **argv)
{
	uint64_t parts = argc > 1 ? atoi(argv[1]) : 2, part = argc > 2 ? atoi(argv[2]) : 0, entered, exited;
	struct atomizer_bpf *skel;
	uint32_t key = 0;

	begin();
	skel = atomizer_bpf__open_and_load();
	MUST(skel, "load");
	MUST(bpf_map_update_elem(bpf_map__fd(skel->maps.partition_num_map), &key, &parts, BPF_ANY) == 0, "parts");
	MUST(bpf_map_update_elem(bpf_map__fd(skel->maps.partition_index_map), &key, &part, BPF_ANY) == 0, "part");
	MUST(atomizer_bpf__attach(skel) == 0, "attach");
	while (!exiting)
		usleep(50000);
	MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.entered), &key, &entered) == 0, "lookup");
	MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.exited), &key, &exited) == 0, "lookup");
	printf("entered %lu, exited %lu\n", entered, exited);
	atomizer_bpf__destroy(skel);
	return 0;
}

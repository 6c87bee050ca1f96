// SPDX-License-Identifier: MIT OR Apache-2.0
// Sets variables and a map entry before the application comes, and reads the count through the skeleton.
#include "tool.h"
#include "globals.skel.h"

int main(void)
{
	struct globals_bpf *skel;
	uint32_t key = 2;
	uint64_t limit = 77;

	begin();
	skel = globals_bpf__open();
	MUST(skel, "open");
	skel->rodata->step = 3;
	MUST(globals_bpf__load(skel) == 0, "load");
	MUST(bpf_map_update_elem(bpf_map__fd(skel->maps.limits), &key, &limit, BPF_ANY) == 0, "update");
	skel->data->weight = 7;
	MUST(globals_bpf__attach(skel) == 0, "attach");
	while (!exiting)
		usleep(50000);
	printf("count %lu, weight %lu\n", (unsigned long)skel->bss->count, (unsigned long)skel->data->weight);
	globals_bpf__destroy(skel);
	return 0;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
// Shows what both sides have added. Run where `./vec_add` is.
#include "tool.h"
#include "kernelshared.skel.h"

int main(void)
{
	struct kernelshared_bpf *skel;
	uint64_t values[2];

	begin();
	skel = kernelshared_bpf__open_and_load();
	MUST(skel, "load");
	MUST(kernelshared_bpf__attach(skel) == 0, "attach");
	while (!exiting)
		usleep(1000);
	for (uint32_t key = 0; key < 2; key++)
		MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.counts), &key, &values[key]) == 0, "lookup");
	printf("value(0)=%lu value(1)=%lu\n", values[0], values[1]);
	kernelshared_bpf__destroy(skel);
	return 0;
}

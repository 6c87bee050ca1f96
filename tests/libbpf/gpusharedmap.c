// SPDX-License-Identifier: MIT OR Apache-2.0
// Shows the counter of all and that of each process.
#include "tool.h"
#include "gpusharedmap.skel.h"

int main(void)
{
	struct gpusharedmap_bpf *skel;
	uint32_t key = 0, *before = NULL;
	uint64_t value;
	int fd;

	begin();
	skel = gpusharedmap_bpf__open_and_load();
	MUST(skel, "load");
	MUST(gpusharedmap_bpf__attach(skel) == 0, "attach");
	while (!exiting)
		usleep(50000);
	MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.counter), &key, &value) == 0, "lookup");
	printf("counter[0]=%lu\n", value);
	fd = bpf_map__fd(skel->maps.counter_per_thread);
	for (; bpf_map_get_next_key(fd, before, &key) == 0; before = &key) {
		MUST(bpf_map_lookup_elem(fd, &key, &value) == 0, "lookup");
		printf("pid=%s calls: %lu\n", key ? "set" : "0", value);
	}
	gpusharedmap_bpf__destroy(skel);
	return 0;
}

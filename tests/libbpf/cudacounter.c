// SPDX-License-Identifier: MIT OR Apache-2.0
// Shows calls and time for each process every 50 ms, walking the hashes by their keys.
#include "tool.h"
#include "cudacounter.skel.h"

static int show(const char *name, int fd)
{
	uint32_t key, *before = NULL;
	uint64_t value;

	while (bpf_map_get_next_key(fd, before, &key) == 0) {
		MUST(bpf_map_lookup_elem(fd, &key, &value) == 0, "lookup");
		printf("\tpid=%u \t%s: %lu\n", key, name, value);
		before = &key;
	}
	return errno == ENOENT ? 0 : 1;
}

int main(void)
{
	struct cudacounter_bpf *skel;
	uint32_t key, left = 0;

	begin();
	skel = cudacounter_bpf__open_and_load();
	MUST(skel, "load");
	MUST(cudacounter_bpf__attach(skel) == 0, "attach");
	while (!exiting) {
		usleep(50000);
		if (show("calls", bpf_map__fd(skel->maps.call_count)))
			return 1;
	}
	if (show("calls", bpf_map__fd(skel->maps.call_count)) || show("time", bpf_map__fd(skel->maps.total_time_ns)))
		return 1;
	for (uint32_t *before = NULL; bpf_map_get_next_key(bpf_map__fd(skel->maps.start_ts), before, &key) == 0;
	     before = &key)
		left++;
	printf("entered and not left: %u\n", left);
	cudacounter_bpf__destroy(skel);
	return 0;
}

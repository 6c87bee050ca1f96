// SPDX-License-Identifier: MIT OR Apache-2.0
// usage: launchshared FILE FUNCTION: the file that has cudaLaunchKernel, a library or the application itself, `-` for what the
// program's section names. The device's clock is taken for the time of day
#include <time.h>
#include "tool.h"
#include "launchshared.skel.h"

#define BINS 10

static int64_t nanoseconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

// How far CLOCK_MONOTONIC is from the time of day: of several tries, the one in which least time went by.
static int64_t clock_offset(void)
{
	int64_t offset = 0, best = INT64_MAX;

	for (int i = 0; i < 10; i++) {
		int64_t before = nanoseconds(CLOCK_MONOTONIC), day = nanoseconds(CLOCK_REALTIME);
		int64_t took = nanoseconds(CLOCK_MONOTONIC) - before;

		if (took < best) {
			best = took;
			offset = before + took / 2 - day;
		}
	}
	return offset;
}

int main(int argc, char **argv)
{
	const char *file = argc > 2 ? argv[1] : "-";
	int64_t offset = clock_offset();
	uint64_t bin, samples = 0, last = 0;
	struct launchshared_bpf *skel;
	uint32_t key = 0;

	begin();
	skel = launchshared_bpf__open_and_load();
	MUST(skel, "load");
	MUST(bpf_map_update_elem(bpf_map__fd(skel->maps.clock_offset), &key, &offset, BPF_ANY) == 0, "offset");
	if (strcmp(file, "-") != 0) {
		LIBBPF_OPTS(bpf_uprobe_opts, opts, .func_name = argv[2]);

		skel->links.on_launch = bpf_program__attach_uprobe_opts(skel->progs.on_launch, -1, file, 0, &opts);
		MUST(skel->links.on_launch, "uprobe");
	}
	MUST(launchshared_bpf__attach(skel) == 0, "attach");
	printf("Monitoring CUDA kernel launch latency\n");
	while (!exiting)
		usleep(50000);
	for (key = 0; key < BINS; key++) {
		MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.histogram), &key, &bin) == 0, "lookup");
		samples += bin;
	}
	MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.histogram), &key, &bin) == 0, "lookup");
	key = 0;
	MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.last_launch), &key, &last) == 0, "lookup");
	printf("Total samples: %lu, early %lu, last launch %s\n", samples, bin, last ? "seen" : "not seen");
	launchshared_bpf__destroy(skel);
	return 0;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
// usage: launchlate [FILE [FUNCTION]]: the file that has cudaLaunchKernel, a library or the application itself; without it what
// the programs' sections name
#include "tool.h"
#include "launchlate.h"
#include "launchlate.skel.h"

static uint64_t events, strange, before;
static struct event first;

static int on_event(void *context, void *data, size_t size)
{
	const struct event *event = data;

	(void)context;
	if (!events++)
		first = *event;
	strange += size != sizeof(*event) || event->time <= before || event->function != first.function;
	strange += event->pid != first.pid || strcmp(event->name, first.name);
	before = event->time;
	return 0;
}

static struct bpf_link *attach(struct bpf_program *program, const char *file, const char *function, bool at_end)
{
	LIBBPF_OPTS(bpf_uprobe_opts, opts, .func_name = function, .retprobe = at_end);

	return bpf_program__attach_uprobe_opts(program, -1, file, 0, &opts);
}

int main(int argc, char **argv)
{
	const char *file = argc > 1 ? argv[1] : NULL, *function = argc > 2 ? argv[2] : "cudaLaunchKernel";
	struct launchlate_bpf *skel;
	struct ring_buffer *ring;
	uint64_t bin, samples = 0, launches = 0;
	uint32_t pid;

	begin();
	skel = launchlate_bpf__open_and_load();
	MUST(skel, "load");
	ring = ring_buffer__new(bpf_map__fd(skel->maps.events), on_event, NULL, NULL);
	MUST(ring, "ring");
	if (file) {
		skel->links.on_launch = attach(skel->progs.on_launch, file, function, false);
		MUST(skel->links.on_launch, "uprobe");
		skel->links.on_launched = attach(skel->progs.on_launched, file, function, true);
		MUST(skel->links.on_launched, "uretprobe");
	}
	// What is not attached yet, where its section says.
	MUST(launchlate_bpf__attach(skel) == 0, "attach");
	printf("Monitoring CUDA kernel launch latency\n");
	while (!exiting) {
		int got = ring_buffer__poll(ring, 50);

		if (got < 0 && got != -EINTR)
			return 1;
	}
	ring_buffer__consume(ring);
	for (uint32_t key = 0; key < BINS; key++) {
		MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.histogram), &key, &bin) == 0, "lookup");
		samples += bin;
	}
	MUST(bpf_map_get_next_key(bpf_map__fd(skel->maps.launches), NULL, &pid) == 0, "no launch");
	MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.launches), &pid, &launches) == 0, "lookup");
	pid = BINS;
	MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.histogram), &pid, &bin) == 0, "lookup");
	printf("Total samples: %lu, of threads %lu, early %lu\n", samples, (unsigned long)skel->bss->entries, bin);
	printf("launches %lu by %s, returns %lu, failures %lu, events %lu, strange %lu\n", launches, first.name,
	       (unsigned long)skel->bss->returns, (unsigned long)skel->bss->failures, events, strange);
	ring_buffer__free(ring);
	launchlate_bpf__destroy(skel);
	return 0;
}

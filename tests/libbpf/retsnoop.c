// SPDX-License-Identifier: MIT OR Apache-2.0
// Takes records by ring_buffer__poll and counts how often each thread came: usage: retsnoop BLOCKS THREADS
#include "tool.h"
#include "retsnoop.h"
#include "retsnoop.skel.h"

static unsigned long blocks, threads, total, strange;
static unsigned *seen;

static int on_record(void *context, void *data, size_t size)
{
	struct record *record = data;

	(void)context;
	total++;
	if (size != sizeof(*record) || record->block >= blocks || record->thread >= threads || !record->time)
		strange++;
	else
		seen[record->block * threads + record->thread]++;
	return 0;
}

int main(int argc, char **argv)
{
	struct retsnoop_bpf *skel;
	struct ring_buffer *ring;
	unsigned least = ~0u, most = 0;

	begin();
	blocks = argc > 1 ? atoi(argv[1]) : 1;
	threads = argc > 2 ? atoi(argv[2]) : 256;
	seen = calloc(blocks * threads, sizeof(*seen));
	skel = retsnoop_bpf__open_and_load();
	MUST(skel && seen, "load");
	MUST(retsnoop_bpf__attach(skel) == 0, "attach");
	ring = ring_buffer__new(bpf_map__fd(skel->maps.records), on_record, NULL, NULL);
	MUST(ring, "ring");
	while (!exiting) {
		int got = ring_buffer__poll(ring, 100);

		if (got < 0 && got != -EINTR) {
			fprintf(stderr, "poll: %d\n", got);
			return 1;
		}
	}
	for (unsigned long i = 0; i < blocks * threads; i++) {
		least = seen[i] < least ? seen[i] : least;
		most = seen[i] > most ? seen[i] : most;
	}
	printf("records %lu, strange %lu, each thread %u to %u times\n", total, strange, least, most);
	ring_buffer__free(ring);
	retsnoop_bpf__destroy(skel);
	free(seen);
	return 0;
}

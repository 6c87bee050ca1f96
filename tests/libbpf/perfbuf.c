// SPDX-License-Identifier: MIT OR Apache-2.0
// Takes records by perf_buffer__poll and by bpftime's function for its rings, which it finds by name.
#define _GNU_SOURCE
#include <dlfcn.h>
#include "tool.h"
#include "perfbuf.skel.h"

typedef int poll_records(int fd, void *context, void (*take)(const void *, uint64_t, void *));

static unsigned long perf_total, perf_sum, ring_total, ring_sum, strange, lost;

static void on_sample(void *context, int cpu, void *data, __u32 size)
{
	uint64_t *record = data;

	(void)context;
	(void)cpu;
	perf_total++;
	perf_sum += record[0];
	// A sample may have padding behind it.
	strange += size < 16 || record[1] != 7;
}

static void on_lost(void *context, int cpu, __u64 count)
{
	(void)context;
	(void)cpu;
	lost += count;
}

static void on_record(const void *data, uint64_t size, void *context)
{
	const uint64_t *record = data;

	(void)context;
	ring_total++;
	ring_sum += record[0];
	strange += size != 16 || record[1] != 7;
}

int main(void)
{
	struct perfbuf_bpf *skel;
	struct perf_buffer *buffer;
	poll_records *poll = (poll_records *)dlsym(RTLD_DEFAULT, "bpftime_syscall_server__poll_gpu_ringbuf_map");

	begin();
	skel = perfbuf_bpf__open_and_load();
	MUST(skel && poll, "load");
	buffer = perf_buffer__new(bpf_map__fd(skel->maps.perf), 16, on_sample, on_lost, NULL, NULL);
	MUST(buffer, "buffer");
	MUST(perfbuf_bpf__attach(skel) == 0, "attach");
	while (!exiting) {
		int got = perf_buffer__poll(buffer, 50);

		if (got < 0 && got != -EINTR)
			return 1;
		if (poll(bpf_map__fd(skel->maps.records), NULL, on_record) < 0)
			return 1;
	}
	printf("perf %lu sum %lu lost %lu, ring %lu sum %lu, strange %lu\n", perf_total, perf_sum, lost, ring_total,
	       ring_sum, strange);
	perf_buffer__free(buffer);
	perfbuf_bpf__destroy(skel);
	return 0;
}

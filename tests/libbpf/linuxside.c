// SPDX-License-Identifier: MIT OR Apache-2.0
// Calls of its own that a program of Linux counts, before, while and after a program of the GPU counts threads.
#include <sys/syscall.h>
#include "tool.h"
#include "linuxside.skel.h"

#define CALLS 100
/* What a test takes for "not run here". */
#define SKIPPED 77

static uint64_t records[3], samples[3], strange, last;

static int on_record(void *context, void *data, size_t size)
{
	uint32_t *record = data;

	(void)context;
	if (size != 8 || record[0] < 1 || record[0] > 2) {
		strange++;
		return 0;
	}
	records[record[0]]++;
	/* Those of Linux come in their order. */
	if (record[0] == 1) {
		strange += record[1] <= last;
		last = record[1];
	}
	return 0;
}

static void on_sample(void *context, int cpu, void *data, uint32_t size)
{
	uint32_t *record = data;

	(void)context;
	/* Linux pads samples. */
	if (cpu < 0 || size < 8 || size > 12 || record[0] < 1 || record[0] > 2)
		strange++;
	else
		samples[record[0]]++;
}

static void on_lost(void *context, int cpu, unsigned long long count)
{
	(void)context;
	(void)cpu;
	strange += count;
}

static void calls(void)
{
	for (int i = 0; i < CALLS; i++)
		syscall(SYS_getpgid, 0);
}

static uint64_t get(const struct bpf_map *map, uint32_t key)
{
	uint64_t value = 0;

	if (bpf_map_lookup_elem(bpf_map__fd(map), &key, &value))
		return -1;
	return value;
}

static void show(const char *name, const struct bpf_map *map)
{
	uint32_t key, *before = NULL;
	int keys = 0;

	while (bpf_map_get_next_key(bpf_map__fd(map), before, &key) == 0) {
		before = &key;
		keys++;
	}
	printf("%s: both %lu, gpu %lu, linux %lu, keys %d\n", name, get(map, 0), get(map, 1), get(map, 2), keys);
}

int main(void)
{
	int cpus = libbpf_num_possible_cpus(), changed = 0;
	struct perf_buffer *perf;
	struct ring_buffer *ring;
	struct linuxside_bpf *skel;
	uint64_t values[cpus], sum = 0;
	uint32_t zero = 0;
	char log[4096] = "";

	begin();
	skel = linuxside_bpf__open();
	MUST(skel, "open");
	skel->rodata->pid = getpid();
	skel->rodata->call = SYS_getpgid;
	skel->rodata->look = SYS_getsid;
	bpf_program__set_log_buf(skel->progs.on_call, log, sizeof(log));
	if (linuxside_bpf__load(skel)) {
		printf("load: %s: %s", strerror(errno), log);
		return errno == EPERM ? SKIPPED : 1;
	}
	ring = ring_buffer__new(bpf_map__fd(skel->maps.events), on_record, NULL, NULL);
	MUST(ring, "a ring");
	perf = perf_buffer__new(bpf_map__fd(skel->maps.samples), 64, on_sample, on_lost, NULL, NULL);
	MUST(perf, "a perf buffer");
	if (linuxside_bpf__attach(skel))
		return SKIPPED;
	calls();
	while (!exiting) {
		ring_buffer__poll(ring, 20);
		perf_buffer__poll(perf, 1);
		if (!changed && get(skel->maps.array, 1) > 0) {
			/* The application is there. */
			calls();
			changed = 1;
		}
	}
	/* It has ended, maybe before it was seen: Linux counts on. */
	if (!changed)
		calls();
	skel->bss->host += 1000;
	usleep(1000);
	calls();
	/* What the GPU has counted comes to Linux. */
	for (int i = 0; i < 1000 && skel->bss->seen != get(skel->maps.array, 1) + skel->bss->gpu; i++) {
		usleep(10000);
		syscall(SYS_getsid, 0);
		usleep(1000);
	}
	/* Records of Linux come a moment later. */
	for (int i = 0; i < 1000 && (records[1] < 3 * CALLS || samples[1] < 3 * CALLS); i++) {
		ring_buffer__consume(ring);
		perf_buffer__consume(perf);
		usleep(1000);
	}
	MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.percpu), &zero, values) == 0, "percpu");
	for (int i = 0; i < cpus; i++)
		sum += values[i];
	printf("calls %lu, per CPU %lu\n", get(skel->maps.calls, 7), sum);
	show("hash", skel->maps.hash);
	show("array", skel->maps.array);
	printf("variables: together %llu, gpu %llu, linux %llu, seen %llu\n", skel->bss->together, skel->bss->gpu, skel->bss->host,
	       skel->bss->seen);
	printf("records: linux %lu, gpu %lu, strange %lu\n", records[1], records[2], strange);
	printf("samples: linux %lu, gpu %lu\n", samples[1], samples[2]);
	perf_buffer__free(perf);
	ring_buffer__free(ring);
	linuxside_bpf__destroy(skel);
	return 0;
}

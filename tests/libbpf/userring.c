// SPDX-License-Identifier: MIT OR Apache-2.0
// Gives records to programs: some before there is an application, then more than the ring holds, while a kernel drains them.
#include <sys/mman.h>
#include "tool.h"
#include "warpbpf_loader.h"
#include "userring.skel.h"

#define BEFORE 40
#define RECORDS 3000
#define MINUTE (60 * 1000)

struct job {
	uint64_t number, value;
	uint8_t text[8];
};

/* What Linux refuses. */
static int refusals(int fd)
{
	static const uint32_t sizes[][2] = {{4095, 0}, {0, 0}, {3 * 4096, 0}, {4096, 8}};
	void *page;

	for (int i = 0; i < 4; i++) {
		LIBBPF_OPTS(bpf_map_create_opts, none);
		int map = bpf_map_create(BPF_MAP_TYPE_USER_RINGBUF, "bad", 0, sizes[i][1], sizes[i][0], &none);

		if (map != -EINVAL) {
			printf("%u bytes, values of %u: %d\n", sizes[i][0], sizes[i][1], map);
			return 1;
		}
	}
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	printf("sizes: %s, ", strerror(EINVAL));
	printf("the consumer's position: %s\n", page == MAP_FAILED ? strerror(errno) : "writable");
	return 0;
}

/* Even ones have text. Before each seventh one is reserved that is then discarded. */
static int give(struct user_ring_buffer *ring, uint64_t number, int patience)
{
	uint32_t size = number % 2 ? 16 : sizeof(struct job);
	struct job *job;

	if (number % 7 == 0) {
		job = user_ring_buffer__reserve_blocking(ring, 100, patience);
		MUST(job, "reserve");
		memset(job, 0xff, 100);
		user_ring_buffer__discard(ring, job);
	}
	job = user_ring_buffer__reserve_blocking(ring, size, patience);
	MUST(job, "reserve");
	job->number = number;
	job->value = number * 3;
	if (size > 16)
		memcpy(job->text, (uint8_t[8]){2, 0, 0, 0, 0, 0, 0, 3}, 8);
	user_ring_buffer__submit(ring, job);
	return 0;
}

int main(void)
{
	LIBBPF_OPTS(user_ring_buffer_opts, none);
	struct user_ring_buffer *ring;
	struct userring_bpf *skel;
	uint64_t done[7] = {0};
	uint32_t one = 1, zero = 0;
	int fd, control;

	begin();
	MUST(warpbpf_register() == 0, "register");
	skel = userring_bpf__open_and_load();
	MUST(skel, "load");
	fd = bpf_map__fd(skel->maps.jobs);
	control = bpf_map__fd(skel->maps.control);
	if (refusals(fd))
		return 1;
	ring = user_ring_buffer__new(fd, &none);
	MUST(ring, "a ring");
	/* Nobody drains yet: they wait. */
	for (uint64_t n = 1; n <= BEFORE; n++)
		if (give(ring, n, 0))
			return 1;
	MUST(!user_ring_buffer__reserve(ring, 4096) && errno == E2BIG, "too large a record");
	MUST(!user_ring_buffer__reserve(ring, 4080) && errno == ENOSPC, "no room for a large record");
	MUST(userring_bpf__attach(skel) == 0, "attach");
	for (uint64_t n = BEFORE + 1; n <= RECORDS; n++)
		if (give(ring, n, MINUTE))
			return 1;
	for (int i = 0; i < MINUTE / 10 && !exiting && done[0] < RECORDS; i++) {
		usleep(10000);
		bpf_map_lookup_elem(bpf_map__fd(skel->maps.done), &zero, &done[0]);
	}
	for (uint32_t key = 0; key < 7; key++)
		bpf_map_lookup_elem(bpf_map__fd(skel->maps.done), &key, &done[key]);
	MUST(bpf_map_update_elem(control, &zero, &one, BPF_ANY) == 0, "end");
	while (!exiting)
		usleep(10000);
	printf("records %lu, sum %lu, last %lu, out of order %lu, short %lu, text %lu\n", done[0], done[1], done[2],
	       done[3], done[4], done[5]);
	user_ring_buffer__free(ring);
	userring_bpf__destroy(skel);
	return 0;
}

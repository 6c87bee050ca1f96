// SPDX-License-Identifier: MIT OR Apache-2.0
// Goes through every key of a hash while the application lives, in each of the ways that tools have: key by key, with and without the
// values, and in batches; then takes some of them away one by one. Says what it found, and on standard error how long it took.
// usage: walk KEYS FILE   (the file is made at the end)
#include <fcntl.h>
#include <time.h>
#include "tool.h"
#include "walk.skel.h"

#define BATCH 4096
#define TAKEN 100

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

struct found {
	unsigned long keys, sum, wrong;
};

static void add(struct found *found, uint64_t key, uint64_t value)
{
	found->keys++;
	found->sum += key;
	found->wrong += value != 3 * key + 1;
}

// Key by key; with the values, or as if they were right.
static struct found walk(int fd, int values)
{
	struct found found = {};
	uint64_t key, value, *before = NULL;

	while (bpf_map_get_next_key(fd, before, &key) == 0) {
		value = 3 * key + 1;
		if (values && bpf_map_lookup_elem(fd, &key, &value) != 0) {
			fprintf(stderr, "key %lu: %s\n", (unsigned long)key, strerror(errno));
			value = 0;
		}
		add(&found, key, value);
		before = &key;
	}
	return found;
}

static struct found batches(int fd)
{
	static uint64_t keys[BATCH], values[BATCH];
	struct found found = {};
	uint32_t place, *in = NULL, count, i;
	int more;

	do {
		count = BATCH;
		more = bpf_map_lookup_batch(fd, in, &place, keys, values, &count, NULL) == 0;
		if (!more && errno != ENOENT)
			break;
		for (i = 0; i < count; i++)
			add(&found, keys[i], values[i]);
		in = &place;
	} while (more);
	return found;
}

// Each key is looked up and deleted before the next one is asked for.
static struct found take(int fd, int most)
{
	struct found found = {};
	uint64_t key, value, next;
	int more = bpf_map_get_next_key(fd, NULL, &key) == 0;

	while (more && found.keys < (unsigned long)most) {
		if (bpf_map_lookup_elem(fd, &key, &value) != 0)
			value = 0;
		add(&found, key, value);
		more = bpf_map_get_next_key(fd, &key, &next) == 0;
		if (bpf_map_delete_elem(fd, &key) != 0)
			found.wrong++;
		key = next;
	}
	return found;
}

static void say(const char *how, struct found found, double begun)
{
	fprintf(stderr, "%s: %.1f ms\n", how, now() - begun);
	printf("%s: keys %lu, sum %lu, wrong %lu\n", how, found.keys, found.sum, found.wrong);
}

int main(int argc, char **argv)
{
	struct walk_bpf *skel;
	unsigned long expected;
	struct found found;
	double begun;
	int fd, end;

	if (argc != 3) {
		fprintf(stderr, "usage: walk KEYS FILE\n");
		return 2;
	}
	expected = strtoul(argv[1], NULL, 0);
	begin();
	skel = walk_bpf__open_and_load();
	MUST(skel, "load");
	MUST(walk_bpf__attach(skel) == 0, "attach");
	fd = bpf_map__fd(skel->maps.entries);
	do
		usleep(20000);
	while (!exiting && batches(fd).keys < expected);
	begun = now();
	say("keys", walk(fd, 0), begun);
	begun = now();
	say("keys and values", walk(fd, 1), begun);
	begun = now();
	say("batches", batches(fd), begun);
	begun = now();
	found = take(fd, TAKEN);
	fprintf(stderr, "taken: %.1f ms\n", now() - begun);
	printf("taken: keys %lu, wrong %lu\n", found.keys, found.wrong);
	printf("left: keys %lu\n", walk(fd, 0).keys);
	end = open(argv[2], O_WRONLY | O_CREAT, 0600);
	MUST(end >= 0, argv[2]);
	close(end);
	while (!exiting)
		usleep(20000);
	walk_bpf__destroy(skel);
	return 0;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
// Once a file is there, does with each map all that its type lets a tool do, while the application lives: what it did and what came of it
// is told in lines. Then the programs take what it put there, and at the end it tells what is left.
// usage: manymaps FILE
#include "tool.h"
#include "manymaps.skel.h"

#define CPUS 4096

static int cpus;

// Zero, or the name of an error.
static const char *outcome(int result)
{
	return result == 0 ? "ok" : strerror(errno);
}

// Maps of keys: so many values for each.
struct keyed {
	const char *name;
	int fd, each;
};

static uint64_t sum(const uint64_t *values, uint64_t count)
{
	uint64_t sum = 0;

	while (count--)
		sum += values[count];
	return sum;
}

// `value` for the second CPU, or the only value: who reads adds up.
static void fill(uint64_t *values, int each, uint64_t value)
{
	memset(values, 0, each * sizeof(*values));
	values[each > 1] = value;
}

static void all_keys(const struct keyed *map, const char *when)
{
	static uint64_t values[CPUS];
	uint64_t keys = 0, key_sum = 0, value_sum = 0;
	uint32_t key, *before = NULL;

	while (bpf_map_get_next_key(map->fd, before, &key) == 0) {
		if (bpf_map_lookup_elem(map->fd, &key, values) == 0)
			value_sum += sum(values, map->each);
		keys++;
		key_sum += key;
		before = &key;
	}
	printf("%s %s: keys %lu, sum %lu, values %lu\n", map->name, when, keys, key_sum, value_sum);
}

// A value for each CPU that there can be, as libbpf has it, is read back as it was written; then the key is as before.
static void everywhere(const struct keyed *map, uint32_t key)
{
	static uint64_t before[CPUS], written[CPUS], found[CPUS];
	int result = bpf_map_lookup_elem(map->fd, &key, before);

	for (int cpu = 0; cpu < map->each; cpu++)
		written[cpu] = cpu + 1;
	result |= bpf_map_update_elem(map->fd, &key, written, BPF_ANY);
	result |= bpf_map_lookup_elem(map->fd, &key, found);
	result |= bpf_map_update_elem(map->fd, &key, before, BPF_ANY);
	printf("%s everywhere: %s, %s\n", map->name, outcome(result),
	       memcmp(written, found, map->each * sizeof(*found)) ? "something else" : "as written");
}

static void one_by_one(const struct keyed *map)
{
	static uint64_t values[CPUS];
	uint32_t five = 5, six = 6, seven = 7, none = 9999;

	fill(values, map->each, 50);
	printf("%s update: %s, ", map->name, outcome(bpf_map_update_elem(map->fd, &five, values, BPF_ANY)));
	printf("%s, ", outcome(bpf_map_update_elem(map->fd, &five, values, BPF_NOEXIST)));
	printf("%s\n", outcome(bpf_map_update_elem(map->fd, &none, values, BPF_EXIST)));
	memset(values, 0, sizeof(values));
	printf("%s lookup: %s, ", map->name, outcome(bpf_map_lookup_elem(map->fd, &five, values)));
	printf("%lu, ", sum(values, map->each));
	printf("%s\n", outcome(bpf_map_lookup_elem(map->fd, &none, values)));
	everywhere(map, five);
	printf("%s delete: %s, ", map->name, outcome(bpf_map_delete_elem(map->fd, &six)));
	printf("%s, ", outcome(bpf_map_delete_elem(map->fd, &six)));
	printf("%s\n", outcome(bpf_map_lookup_elem(map->fd, &six, values)));
	memset(values, 0, sizeof(values));
	printf("%s take: %s, ", map->name, outcome(bpf_map_lookup_and_delete_elem(map->fd, &seven, values)));
	printf("%lu, ", sum(values, map->each));
	printf("%s\n", outcome(bpf_map_lookup_and_delete_elem(map->fd, &seven, values)));
}

// All keys in batches of five, which stay or are taken.
static void in_batches(const struct keyed *map, int take)
{
	static uint64_t values[5 * CPUS];
	uint64_t keys_found = 0, key_sum = 0, value_sum = 0;
	uint32_t keys[5], place, *in = NULL, count;
	int result;

	do {
		count = 5;
		result = take ? bpf_map_lookup_and_delete_batch(map->fd, in, &place, keys, values, &count, NULL)
			      : bpf_map_lookup_batch(map->fd, in, &place, keys, values, &count, NULL);
		if (result != 0 && errno != ENOENT)
			break;
		value_sum += sum(values, (uint64_t)count * map->each);
		for (uint32_t i = 0; i < count; i++)
			key_sum += keys[i];
		keys_found += count;
		// What is taken is gone: its batches begin anew.
		in = take ? NULL : &place;
	} while (result == 0);
	printf("%s %s: keys %lu, sum %lu, values %lu, then %s\n", map->name, take ? "taken" : "batches", keys_found,
	       key_sum, value_sum, outcome(result));
}

static void batches(const struct keyed *map)
{
	static uint64_t values[10 * CPUS];
	uint32_t keys[10], count = 10;

	for (int i = 0; i < 10; i++) {
		keys[i] = 1000 + i;
		fill(values + i * map->each, map->each, 7);
	}
	printf("%s update batch: %s, ", map->name, outcome(bpf_map_update_batch(map->fd, keys, values, &count, NULL)));
	printf("%u\n", count);
	count = 4;
	printf("%s delete batch: %s, ", map->name, outcome(bpf_map_delete_batch(map->fd, keys, &count, NULL)));
	printf("%u, ", count);
	count = 10;
	// The first is gone.
	printf("%s, ", outcome(bpf_map_delete_batch(map->fd, keys, &count, NULL)));
	printf("%u\n", count);
}

static void put_back(const struct keyed *map)
{
	static uint64_t values[CPUS];
	int result = 0;

	fill(values, map->each, 100);
	for (uint32_t key = 0; key < 4; key++)
		result |= bpf_map_update_elem(map->fd, &key, values, BPF_NOEXIST);
	printf("%s put back: %s\n", map->name, outcome(result));
}

static void row(const char *name, int fd)
{
	uint32_t value = 0, popped = 0, key = 0;
	uint64_t total = 0;

	while (bpf_map_lookup_and_delete_elem(fd, NULL, &value) == 0) {
		popped++;
		total += value;
	}
	printf("%s popped: %u, sum %lu, then %s, ", name, popped, total, strerror(errno));
	printf("%s\n", outcome(bpf_map_lookup_elem(fd, NULL, &value)));
	for (value = 1; bpf_map_update_elem(fd, NULL, &value, BPF_ANY) == 0; value++)
		;
	printf("%s pushed: %u, then %s, ", name, value - 1, strerror(errno));
	printf("%s, ", outcome(bpf_map_update_elem(fd, NULL, &value, BPF_EXIST)));
	printf("%s, ", outcome(bpf_map_lookup_elem(fd, NULL, &value)));
	printf("%u\n", value);
	printf("%s refused: %s, ", name, outcome(bpf_map_delete_elem(fd, &key)));
	printf("%s\n", outcome(bpf_map_get_next_key(fd, NULL, &key)));
	while (bpf_map_lookup_and_delete_elem(fd, NULL, &value) == 0)
		;
	for (value = 101; value <= 103; value++)
		bpf_map_update_elem(fd, NULL, &value, BPF_ANY);
	printf("%s peek: %s, ", name, outcome(bpf_map_lookup_elem(fd, NULL, &value)));
	printf("%u\n", value);
}

static void filter(int fd)
{
	uint32_t value, in = 0, other = 1000001, key = 0;

	for (value = 0; value < 256; value++)
		in += bpf_map_lookup_elem(fd, NULL, &value) == 0;
	printf("bloom: %u, %s, ", in, outcome(bpf_map_lookup_elem(fd, NULL, &other)));
	printf("%s, ", outcome(bpf_map_update_elem(fd, NULL, &other, BPF_ANY)));
	printf("%s\n", outcome(bpf_map_lookup_elem(fd, NULL, &other)));
	printf("bloom refused: %s, ", outcome(bpf_map_delete_elem(fd, &key)));
	printf("%s, ", outcome(bpf_map_get_next_key(fd, NULL, &key)));
	printf("%s\n", outcome(bpf_map_lookup_and_delete_elem(fd, NULL, &value)));
}

static uint32_t id(const struct bpf_map *map)
{
	struct bpf_map_info info = {};
	uint32_t size = sizeof(info);

	return bpf_obj_get_info_by_fd(bpf_map__fd(map), &info, &size) == 0 ? info.id : 0;
}

// Which of the two a key has.
static const char *which(struct manymaps_bpf *skel, int fd, uint32_t key)
{
	uint32_t value;

	if (bpf_map_lookup_elem(fd, &key, &value) != 0)
		return strerror(errno);
	if (value == id(skel->maps.first))
		return "first";
	return value == id(skel->maps.second) ? "second" : "neither";
}

static void of_maps(struct manymaps_bpf *skel, const char *name, int fd, uint32_t base)
{
	int second = bpf_map__fd(skel->maps.second), wrong = bpf_map__fd(skel->maps.phase);
	uint32_t one = base, other = base + 1, key, count = 0, *before = NULL;

	printf("%s: %s, %s, ", name, which(skel, fd, base), which(skel, fd, base + 1));
	printf("%s\n", which(skel, fd, base + 2));
	printf("%s update: %s, ", name, outcome(bpf_map_update_elem(fd, &one, &second, BPF_ANY)));
	printf("%s, ", outcome(bpf_map_update_elem(fd, &one, &wrong, BPF_ANY)));
	printf("%s\n", which(skel, fd, base));
	printf("%s delete: %s, ", name, outcome(bpf_map_delete_elem(fd, &other)));
	printf("%s, ", outcome(bpf_map_delete_elem(fd, &other)));
	printf("%s\n", which(skel, fd, base + 1));
	while (bpf_map_get_next_key(fd, before, &key) == 0) {
		count++;
		before = &key;
	}
	printf("%s keys: %u, then %s\n", name, count, strerror(errno));
}

static uint64_t at(const struct bpf_map *map, uint32_t key)
{
	uint64_t value = 0;

	bpf_map_lookup_elem(bpf_map__fd(map), &key, &value);
	return value;
}

static void rest(struct manymaps_bpf *skel, struct keyed *maps)
{
	int rows[] = { bpf_map__fd(skel->maps.queue), bpf_map__fd(skel->maps.stack) };
	int bloom = bpf_map__fd(skel->maps.bloom);
	int first = bpf_map__fd(skel->maps.first);
	uint32_t value, in = 255, other = 2000002, zero = 0, eight = 8;

	for (int i = 0; i < 4; i++)
		all_keys(&maps[i], "at the end");
	for (int i = 0; i < 2; i++) {
		const char *name = i == 0 ? "queue" : "stack";

		value = 0;
		printf("%s at the end: %s, ", name, outcome(bpf_map_lookup_elem(rows[i], NULL, &value)));
		printf("%u, ", value);
		value = 104;
		printf("%s, ", outcome(bpf_map_update_elem(rows[i], NULL, &value, BPF_ANY)));
		while (bpf_map_lookup_and_delete_elem(rows[i], NULL, &value) == 0)
			printf("%u, ", value);
		printf("%s\n", strerror(errno));
	}
	printf("maps in maps at the end: %s, ", outcome(bpf_map_delete_elem(bpf_map__fd(skel->maps.by_index), &zero)));
	printf("%s, ", which(skel, bpf_map__fd(skel->maps.by_index), 0));
	printf("%s, ", outcome(bpf_map_update_elem(bpf_map__fd(skel->maps.by_key), &eight, &first, BPF_NOEXIST)));
	printf("%s\n", which(skel, bpf_map__fd(skel->maps.by_key), 8));
	printf("bloom at the end: %s, ", outcome(bpf_map_lookup_elem(bloom, NULL, &in)));
	printf("%s, ", outcome(bpf_map_lookup_elem(bloom, NULL, &other)));
	printf("%s, ", outcome(bpf_map_update_elem(bloom, NULL, &other, BPF_ANY)));
	printf("%s\n", outcome(bpf_map_lookup_elem(bloom, NULL, &other)));
	printf("found: queue %lu, stack %lu, bloom %lu, nothing %lu and %lu\n", at(skel->maps.found, 0),
	       at(skel->maps.found, 1), at(skel->maps.found, 2), at(skel->maps.found, 3), at(skel->maps.found, 4));
	printf("inside: first %lu and %lu, second %lu and %lu\n", at(skel->maps.first, 0), at(skel->maps.first, 1),
	       at(skel->maps.second, 0), at(skel->maps.second, 1));
}

int main(int argc, char **argv)
{
	struct manymaps_bpf *skel;
	uint32_t key, zero = 0, one = 1;
	int fd;

	if (argc != 2) {
		fprintf(stderr, "usage: manymaps FILE\n");
		return 2;
	}
	begin();
	cpus = libbpf_num_possible_cpus();
	MUST(cpus > 0 && cpus <= CPUS, "CPUs");
	skel = manymaps_bpf__open_and_load();
	MUST(skel, "load");
	for (key = 7; key < 9; key++) {
		fd = bpf_map__fd(key == 7 ? skel->maps.first : skel->maps.second);
		MUST(bpf_map_update_elem(bpf_map__fd(skel->maps.by_key), &key, &fd, BPF_NOEXIST) == 0, "by_key");
	}
	struct keyed maps[] = {
		{ "hash", bpf_map__fd(skel->maps.plain), 1 },
		{ "lru", bpf_map__fd(skel->maps.lru), 1 },
		{ "percpu", bpf_map__fd(skel->maps.percpu), cpus },
		{ "lru percpu", bpf_map__fd(skel->maps.lru_percpu), cpus },
	};
	MUST(manymaps_bpf__attach(skel) == 0, "attach");
	while (!exiting && access(argv[1], F_OK) != 0)
		usleep(5000);
	for (int i = 0; i < 4; i++) {
		all_keys(&maps[i], "filled");
		one_by_one(&maps[i]);
		batches(&maps[i]);
		in_batches(&maps[i], 0);
		in_batches(&maps[i], 1);
		put_back(&maps[i]);
	}
	row("queue", bpf_map__fd(skel->maps.queue));
	row("stack", bpf_map__fd(skel->maps.stack));
	filter(bpf_map__fd(skel->maps.bloom));
	of_maps(skel, "array of maps", bpf_map__fd(skel->maps.by_index), 0);
	of_maps(skel, "hash of maps", bpf_map__fd(skel->maps.by_key), 7);
	MUST(bpf_map_update_elem(bpf_map__fd(skel->maps.phase), &zero, &one, BPF_ANY) == 0, "phase");
	printf("changed\n");
	while (!exiting)
		usleep(5000);
	rest(skel, maps);
	manymaps_bpf__destroy(skel);
	return 0;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
// When so many threads have been counted as its argument says, a link gets another program, or with a second argument one that has
// another map; at the end, what each has counted.
#include "tool.h"
#include "update.skel.h"

static uint64_t hits(struct bpf_map *map, uint32_t key)
{
	uint64_t value = 0;

	bpf_map_lookup_elem(bpf_map__fd(map), &key, &value);
	return value;
}

int main(int argc, char **argv)
{
	uint64_t enough = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	struct update_bpf *skel;
	struct bpf_program *next;
	int updated = 0;

	begin();
	skel = update_bpf__open();
	MUST(skel, "open");
	bpf_program__set_autoload(skel->progs.cuda__second, true);
	bpf_program__set_autoload(skel->progs.cuda__third, true);
	MUST(update_bpf__load(skel) == 0, "load");
	next = argc > 2 ? skel->progs.cuda__third : skel->progs.cuda__second;
	skel->links.cuda__first = bpf_program__attach(skel->progs.cuda__first);
	MUST(skel->links.cuda__first, "attach");
	while (!exiting) {
		usleep(20000);
		if (!updated && hits(skel->maps.hits, 0) >= enough) {
			MUST(bpf_link__update_program(skel->links.cuda__first, next) == 0, "update");
			updated = 1;
			printf("updated\n");
		}
	}
	printf("first %lu second %lu third %lu\n", hits(skel->maps.hits, 0), hits(skel->maps.hits, 1),
	       hits(skel->maps.other, 0));
	update_bpf__destroy(skel);
	return 0;
}

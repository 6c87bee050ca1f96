// SPDX-License-Identifier: MIT OR Apache-2.0
// Attaches and ends programs one by one, as lines of standard input say, and answers each with a line.
// usage: links [DRIVER], a file of whose function cuLaunchKernel calls are counted
#include <poll.h>
#include "tool.h"
#include "links.skel.h"

// A copy of the device's memory may be as old as this.
#define OLD 110000

static const char *const NAMES[] = { "first", "second", "third" };

struct one {
	struct bpf_program *program;
	struct bpf_link *link;
	struct bpf_map *map;
};

static struct links_bpf *load(struct one *all)
{
	struct links_bpf *skel = links_bpf__open_and_load();

	if (skel) {
		all[0] = (struct one){ skel->progs.cuda__first, NULL, skel->maps.first };
		all[1] = (struct one){ skel->progs.cuda__second, NULL, skel->maps.second };
		all[2] = (struct one){ skel->progs.cuda__third, NULL, skel->maps.third };
	}
	return skel;
}

static uint64_t value(struct one *one)
{
	uint64_t value = 0;
	uint32_t key = 0;

	bpf_map_lookup_elem(bpf_map__fd(one->map), &key, &value);
	return value;
}

static int obey(const char *what, struct one *one, uint64_t number)
{
	uint32_t key = 0;

	if (!strcmp(what, "attach")) {
		one->link = bpf_program__attach(one->program);
		return one->link ? 0 : -errno;
	}
	if (!strcmp(what, "set"))
		return bpf_map_update_elem(bpf_map__fd(one->map), &key, &number, BPF_ANY);
	if (!strcmp(what, "detach"))
		return bpf_link__detach(one->link);
	if (!strcmp(what, "end"))
		return bpf_link__destroy(one->link);
	return -1;
}

int main(int argc, char **argv)
{
	LIBBPF_OPTS(bpf_uprobe_opts, opts, .func_name = "cuLaunchKernel");
	struct one all[3], others[3];
	struct links_bpf *skel, *other = NULL;
	struct pollfd input = { .fd = 0, .events = POLLIN };
	char line[64], what[16], which[16];
	unsigned long number;

	begin();
	setvbuf(stdin, NULL, _IONBF, 0);
	skel = load(all);
	MUST(skel, "load");
	MUST(!obey("attach", &all[0], 0) && !obey("attach", &all[1], 0), "attach");
	if (argc > 1) {
		skel->links.on_call = bpf_program__attach_uprobe_opts(skel->progs.on_call, -1, argv[1], 0, &opts);
		MUST(skel->links.on_call, "attach to a function");
	}
	while (!exiting) {
		if (poll(&input, 1, -1) != 1)
			continue;
		if (!fgets(line, sizeof(line), stdin))
			break;
		number = 0;
		which[0] = 0;
		if (sscanf(line, "%15s %15s %lu", what, which, &number) < 1)
			continue;
		if (!strcmp(what, "show")) {
			usleep(OLD);
			printf("first %lu second %lu third %lu all %llu\n", value(&all[0]), value(&all[1]),
			       value(&all[2]), skel->bss->all);
		} else if (!strcmp(what, "variables")) {
			usleep(OLD);
			printf("all %llu thirds %llu mine %llu\n", skel->bss->all, skel->bss->thirds,
			       skel->bss->mine);
		} else if (!strcmp(what, "mine")) {
			// All variables are sent with it.
			skel->bss->mine = strtoul(which, NULL, 10);
			printf("mine: 0\n");
		} else if (!strcmp(what, "calls")) {
			usleep(OLD);
			printf("calls %llu\n", skel->bss->calls);
		} else if (!strcmp(what, "quiet")) {
			printf("quiet: %d\n", bpf_link__destroy(skel->links.on_call));
			skel->links.on_call = NULL;
		} else if (!strcmp(what, "listen")) {
			skel->links.on_call = bpf_program__attach_uprobe_opts(skel->progs.on_call, -1, argv[1], 0, &opts);
			printf("listen: %d\n", skel->links.on_call ? 0 : -errno);
		} else if (!strcmp(what, "more")) {
			// Programs with maps that no application has that runs by now.
			other = load(others);
			MUST(other && !obey("attach", &others[0], 0), "more");
			printf("more: ok\n");
		} else if (!strcmp(what, "less")) {
			printf("less: %d\n", obey("end", &others[0], 0));
			links_bpf__destroy(other);
		} else {
			for (int at = 0; at < 3; at++)
				if (!strcmp(which, NAMES[at]))
					printf("%s: %d\n", what, obey(what, &all[at], number));
		}
	}
	printf("ends\n");
	return 0;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
// Shows two hashes every 50 ms, walking them by their keys.
#include "tool.h"
#include "counter.skel.h"

static int show(const char *name, int fd)
{
	uint32_t key, *before = NULL;
	uint64_t value;

	while (bpf_map_get_next_key(fd, before, &key) == 0) {
		if (bpf_map_lookup_elem(fd, &key, &value) == 0)
			printf("%s pid=%s %lu\n", name, key ? "set" : "0", value);
		before = &key;
	}
	return errno == ENOENT ? 0 : 1;
}

int main(void)
{
	struct counter_bpf *skel;
	int bad = 0;

	begin();
	skel = counter_bpf__open_and_load();
	MUST(skel, "load");
	MUST(counter_bpf__attach(skel) == 0, "attach");
	while (!exiting && !bad) {
		usleep(50000);
		bad = show("calls", bpf_map__fd(skel->maps.calls));
		bad |= show("returns", bpf_map__fd(skel->maps.returns));
	}
	counter_bpf__destroy(skel);
	return bad;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
// Attaches two programs, one of which is in launches by NVTX ranges.
// usage: inranges [N], with which that one is attached when N threads were seen
#include "tool.h"
#include "warpbpf_loader.h"
#include "inranges.skel.h"

static uint64_t seen(struct inranges_bpf *skel, uint32_t key)
{
	uint64_t value = 0;

	bpf_map_lookup_elem(bpf_map__fd(skel->maps.threads), &key, &value);
	return value;
}

int main(int argc, char **argv)
{
	uint64_t enough = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
	struct inranges_bpf *skel;

	begin();
	MUST(warpbpf_register() == 0, "register");
	skel = inranges_bpf__open_and_load();
	MUST(skel, "load");
	skel->links.each = bpf_program__attach(skel->progs.each);
	MUST(skel->links.each, "attach");
	while (enough && !exiting && seen(skel, 0) < enough)
		usleep(10000);
	skel->links.forward = bpf_program__attach(skel->progs.forward);
	MUST(skel->links.forward, "attach");
	printf("attached\n");
	while (!exiting)
		usleep(50000);
	printf("each %lu forward %lu\n", seen(skel, 0), seen(skel, 1));
	inranges_bpf__destroy(skel);
	return 0;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
// usage: faulty FILE FUNCTION
#include "tool.h"
#include "faulty.skel.h"

int main(int argc, char **argv)
{
	LIBBPF_OPTS(bpf_uprobe_opts, opts, .func_name = argc > 2 ? argv[2] : "cuLaunchKernel");
	const char *file = argc > 1 ? argv[1] : "libcuda.so.1";
	struct faulty_bpf *skel;

	begin();
	skel = faulty_bpf__open_and_load();
	MUST(skel, "load");
	skel->links.reads = bpf_program__attach_uprobe_opts(skel->progs.reads, -1, file, 0, &opts);
	skel->links.asks = bpf_program__attach_uprobe_opts(skel->progs.asks, -1, file, 0, &opts);
	skel->links.is_inside = bpf_program__attach_uprobe_opts(skel->progs.is_inside, -1, file, 1, &opts);
	MUST(skel->links.reads && skel->links.asks && skel->links.is_inside, "attach");
	while (!exiting)
		usleep(1000);
	printf("begun %lu, ended %lu, inside %lu\n", (unsigned long)skel->bss->begun, (unsigned long)skel->bss->ended,
	       (unsigned long)skel->bss->inside);
	faulty_bpf__destroy(skel);
	return 0;
}

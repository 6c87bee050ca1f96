// SPDX-License-Identifier: MIT OR Apache-2.0
// usage: kernelshared FILE FUNCTION: what launches kernels
#include "tool.h"
#include "kernelshared.skel.h"

int main(int argc, char **argv)
{
	LIBBPF_OPTS(bpf_uprobe_opts, opts, .retprobe = true, .func_name = argc > 2 ? argv[2] : "cudaLaunchKernel");
	struct kernelshared_bpf *skel;
	uint64_t values[2];

	begin();
	skel = kernelshared_bpf__open_and_load();
	MUST(skel, "load");
	skel->links.on_launched = bpf_program__attach_uprobe_opts(skel->progs.on_launched, -1,
								   argc > 1 ? argv[1] : "libcudart.so", 0, &opts);
	MUST(skel->links.on_launched, "uretprobe");
	skel->links.cuda__leave = bpf_program__attach(skel->progs.cuda__leave);
	MUST(skel->links.cuda__leave, "kretprobe");
	while (!exiting)
		usleep(1000);
	for (uint32_t key = 0; key < 2; key++)
		MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.counts), &key, &values[key]) == 0, "lookup");
	printf("value(0)=%lu value(1)=%lu\n", values[0], values[1]);
	kernelshared_bpf__destroy(skel);
	return 0;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
// Attaches programs of `gpu/` sections like any others: the loader has told libbpf about them.
#include "tool.h"
#include "warpbpf_loader.h"
#include "gpuprobe.skel.h"

int main(void)
{
	struct gpuprobe_bpf *skel;

	begin();
	MUST(warpbpf_register() == 0, "register");
	skel = gpuprobe_bpf__open_and_load();
	MUST(skel, "load");
	MUST(gpuprobe_bpf__attach(skel) == 0, "attach");
	while (!exiting)
		usleep(50000);
	printf("groups %lu, loads %lu, bytes %lu, chosen %lu\n", (unsigned long)skel->bss->groups,
	       (unsigned long)skel->bss->loads, (unsigned long)skel->bss->bytes, (unsigned long)skel->bss->chosen);
	gpuprobe_bpf__destroy(skel);
	return 0;
}

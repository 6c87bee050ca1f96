// SPDX-License-Identifier: MIT OR Apache-2.0
// Makes 100 calls that a program of Linux counts. usage: hostside fentry|kprobe
#include <stdbool.h>
#include <sys/syscall.h>
#include "tool.h"
#include "hostside.skel.h"

/* What a test takes for "not run here". */
#define SKIPPED 77

int main(int argc, char **argv)
{
	bool fentry = argc > 1 && !strcmp(argv[1], "fentry");
	struct hostside_bpf *skel;
	char log[4096] = "";

	begin();
	skel = hostside_bpf__open();
	MUST(skel, "open");
	skel->rodata->pid = getpid();
	bpf_program__set_autoload(skel->progs.on_entry, fentry);
	bpf_program__set_autoload(skel->progs.on_probe, !fentry);
	bpf_program__set_log_buf(skel->progs.on_entry, log, sizeof(log));
	if (hostside_bpf__load(skel)) {
		printf("load: %s: %s", strerror(errno), log);
		return errno == EPERM ? SKIPPED : 1;
	}
	MUST(hostside_bpf__attach(skel) == 0, "attach");
	for (int i = 0; i < 100; i++)
		syscall(SYS_getpgid, 0);
	while (!exiting)
		usleep(50000);
	printf("entered %lu, probed %lu, gpu %lu\n", (unsigned long)skel->bss->entered, (unsigned long)skel->bss->probed,
	       (unsigned long)skel->bss->gpu);
	hostside_bpf__destroy(skel);
	return 0;
}

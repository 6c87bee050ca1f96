// SPDX-License-Identifier: MIT OR Apache-2.0
// Loads a program with a log of its own and shows what the verifier said.
#include "tool.h"
#include "refused.skel.h"

static char log_text[1 << 16];

int main(void)
{
	struct refused_bpf *skel;
	int error;

	begin();
	libbpf_set_print(NULL);
	skel = refused_bpf__open();
	MUST(skel, "open");
	bpf_program__set_log_buf(skel->progs.cuda__refused, log_text, sizeof(log_text));
	bpf_program__set_log_level(skel->progs.cuda__refused, 1);
	error = refused_bpf__load(skel);
	printf("load: %s\n%s", strerror(-error), log_text);
	refused_bpf__destroy(skel);
	return error == -EACCES ? 3 : 1;
}

/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * For tools that link libbpf statically and use SEC("gpu/...").
 *
 * `warpbpf loader` tells a shared libbpf about such sections by itself. A static one has no names to be found by, so the
 * tool calls warpbpf_register() before it opens an object. Without `warpbpf loader` that does nothing.
 */
#ifndef WARPBPF_LOADER_H
#define WARPBPF_LOADER_H

#include <errno.h>
#include <unistd.h>
#include <bpf/libbpf.h>

/* Of the loader; absent without it. */
extern void warpbpf_loader_announce(const char *program, const char *section) __attribute__((weak));
extern int warpbpf_loader_probe(const char *section) __attribute__((weak));

struct bpf_prog_load_opts;

static int warpbpf_prepare_load(struct bpf_program *prog, struct bpf_prog_load_opts *opts, long cookie)
{
	(void)opts;
	(void)cookie;
	warpbpf_loader_announce(bpf_program__name(prog), bpf_program__section_name(prog));
	return 0;
}

static int warpbpf_attach(const struct bpf_program *prog, long cookie, struct bpf_link **link)
{
	int fd = warpbpf_loader_probe(bpf_program__section_name(prog)), error;

	(void)cookie;
	if (fd < 0)
		return -errno;
	*link = bpf_program__attach_perf_event(prog, fd);
	if (*link)
		return 0;
	error = errno ? errno : EINVAL;
	close(fd);
	return -error;
}

/* Makes libbpf know SEC("gpu/..."). 0, or an error as a negative number. */
static inline int warpbpf_register(void)
{
	LIBBPF_OPTS(libbpf_prog_handler_opts, opts,
		.prog_prepare_load_fn = warpbpf_prepare_load,
		.prog_attach_fn = warpbpf_attach,
	);
	int handler;

	if (!warpbpf_loader_announce || !warpbpf_loader_probe)
		return 0;
	handler = libbpf_register_prog_handler("gpu+", BPF_PROG_TYPE_KPROBE, 0, &opts);
	return handler < 0 ? handler : 0;
}

#endif

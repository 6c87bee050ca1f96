// SPDX-License-Identifier: MIT OR Apache-2.0
// usage: context first|later: uses the CUDA driver itself, and says at each step whether it has a context; `first`: maps of bpftime's GPU
// types are there before the driver. Then it shows each round what it has counted, as a tool that knows no signal.
#include <dlfcn.h>
#include "tool.h"
#include "context.skel.h"

#define DRIVER "libcuda.so.1"
#define GPU_ARRAY 1503

static void *driver;

static int make_gpu_map(void)
{
	return bpf_map_create(GPU_ARRAY, "of_gpu", sizeof(uint32_t), sizeof(uint64_t), 1, NULL);
}

static void *current(void)
{
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
	int (*get)(void **) = (int (*)(void **))dlsym(driver, "cuCtxGetCurrent");
	void *context = NULL;

	if (!init || !get || init(0) || get(&context))
		fprintf(stderr, "the driver does not say what is current\n");
	return context;
}

static void show(const char *step)
{
	printf("%s: %s\n", step, current() ? "a context" : "none");
}

int main(int argc, char **argv)
{
	int first = argc > 1 && !strcmp(argv[1], "first"), (*set)(void *);
	struct context_bpf *skel;
	uint32_t key = 0;
	uint64_t threads;

	begin();
	signal(SIGINT, SIG_DFL);
	skel = context_bpf__open_and_load();
	MUST(skel, "load");
	if (first) {
		MUST(make_gpu_map() >= 0, "map");
		printf("asked: %s\n", dlopen(DRIVER, RTLD_NOW | RTLD_NOLOAD) ? "loaded" : "not loaded");
	}
	driver = dlopen(DRIVER, RTLD_NOW);
	MUST(driver, "driver");
	show("loaded");
	if (!first) {
		MUST(make_gpu_map() >= 0, "map");
		show("a map");
	}
	set = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
	MUST(set && set(NULL) == 0, "set");
	MUST(make_gpu_map() >= 0, "map");
	MUST(dlopen(DRIVER, RTLD_NOW), "driver");
	show("put away");
	MUST(context_bpf__attach(skel) == 0, "attach");
	for (;;) {
		usleep(50000);
		MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.threads), &key, &threads) == 0, "lookup");
		printf("threads %lu\n", threads);
	}
}

// SPDX-License-Identifier: MIT OR Apache-2.0
// usage: launchplt FILE FUNCTION [first|end]: the application's file, and the function in it that stands for the kernel; `first`: what is probed is not
// the file's entry for `cudaLaunchKernel`, but the first one, which is for no function; `end`: the entry's end, which it does not have
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include "tool.h"
#include "launchplt.h"
#include "launchplt.skel.h"

#define LAUNCH "cudaLaunchKernel"
#define TRIES 32

static const char *file_bytes;

static const char *map_file(const char *path)
{
	struct stat stat;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	void *bytes;

	if (fd < 0 || fstat(fd, &stat))
		return NULL;
	bytes = mmap(NULL, stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	return bytes == MAP_FAILED ? NULL : bytes;
}

static const Elf64_Shdr *section(int number)
{
	const Elf64_Ehdr *header = (const void *)file_bytes;

	return (const Elf64_Shdr *)(file_bytes + header->e_shoff) + number;
}

static const Elf64_Shdr *section_named(const char *name)
{
	const Elf64_Ehdr *header = (const void *)file_bytes;
	const char *names = file_bytes + section(header->e_shstrndx)->sh_offset;

	for (int i = 1; i < header->e_shnum; i++)
		if (!strcmp(names + section(i)->sh_name, name))
			return section(i);
	return NULL;
}

// Where a function of the file is, 0 if it has none of that name.
static uint64_t address_of(const char *name)
{
	const Elf64_Shdr *table = section_named(".symtab");
	const Elf64_Sym *symbols;
	const char *names;

	if (!table)
		return 0;
	symbols = (const void *)(file_bytes + table->sh_offset);
	names = file_bytes + section(table->sh_link)->sh_offset;
	for (uint64_t i = 0; i < table->sh_size / sizeof(*symbols); i++)
		if (symbols[i].st_shndx && !strcmp(names + symbols[i].st_name, name))
			return symbols[i].st_value;
	return 0;
}

// The file's entry for a function of another one. Entries are as the relocations are; `.plt` has one of its own before.
static bool entry_of(const char *name, __u64 *address, __u64 *offset)
{
	const Elf64_Shdr *relocations = section_named(".rela.plt"), *table = section_named(".plt.sec");
	const Elf64_Shdr *symbols;
	const Elf64_Rela *all;
	uint64_t first = table ? 0 : 1;

	table = table ? table : section_named(".plt");
	if (!relocations || !table)
		return false;
	symbols = section(relocations->sh_link);
	all = (const void *)(file_bytes + relocations->sh_offset);
	for (uint64_t i = 0; i < relocations->sh_size / sizeof(*all); i++) {
		const Elf64_Sym *symbol = (const void *)(file_bytes + symbols->sh_offset);
		const char *names = file_bytes + section(symbols->sh_link)->sh_offset;

		symbol += ELF64_R_SYM(all[i].r_info);
		if (strcmp(names + symbol->st_name, name))
			continue;
		*address = table->sh_addr + 16 * (i + first);
		*offset = table->sh_offset + 16 * (i + first);
		return true;
	}
	return false;
}

static int64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static const char reads_clock[] = ".version 7.0\n.target sm_60\n.address_size 64\n"
				  ".visible .entry reads_clock(.param .u64 to)\n"
				  "{\n"
				  "  .reg .b64 %rd<3>;\n"
				  "  ld.param.u64 %rd1, [to];\n"
				  "  mov.u64 %rd2, %globaltimer;\n"
				  "  st.global.u64 [%rd1], %rd2;\n"
				  "  ret;\n"
				  "}\n";

// Reads the device's clock between two readings of the CPU's, and keeps those that are closest together. This process has a context
// already, as tools of bpftime's have.
static bool compare_clocks(struct clocks *clocks)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL, *module, *function;
	uint64_t to, began;
	void *arguments[] = { &to };

	if (!driver) {
		fprintf(stderr, "%s\n", dlerror());
		return false;
	}
#define CALL(name, types, ...)                                                                   \
	do {                                                                                     \
		int(*called) types = (int(*) types)dlsym(driver, name);                          \
		int status = called ? called(__VA_ARGS__) : -1;                                  \
		if (status) {                                                                    \
			fprintf(stderr, "%s: %d\n", name, status);                               \
			return false;                                                            \
		}                                                                                \
	} while (0)
	CALL("cuInit", (unsigned), 0);
	CALL("cuCtxGetCurrent", (void **), &context);
	if (!context) {
		fprintf(stderr, "there is no context\n");
		return false;
	}
	CALL("cuModuleLoadData", (void **, const void *), &module, reads_clock);
	CALL("cuModuleGetFunction", (void **, void *, const char *), &function, module, "reads_clock");
	CALL("cuMemAlloc_v2", (uint64_t *, size_t), &to, sizeof(began));
	for (int i = 0; i < TRIES; i++) {
		int64_t before = now(), after;

		CALL("cuLaunchKernel",
		     (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
		     function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
		CALL("cuCtxSynchronize", (void), );
		after = now();
		CALL("cuMemcpyDtoH_v2", (void *, uint64_t, size_t), &began, to, sizeof(began));
		if (clocks->known && after - before >= clocks->high - clocks->low)
			continue;
		*clocks = (struct clocks){ .low = began - after, .high = began - before, .known = 1 };
	}
	CALL("cuMemFree_v2", (uint64_t), to);
	CALL("cuModuleUnload", (void *), module);
	return true;
}

static uint64_t read_one(struct bpf_map *map, uint32_t key)
{
	uint64_t value = 0;

	if (bpf_map_lookup_elem(bpf_map__fd(map), &key, &value))
		fprintf(stderr, "lookup: %s\n", strerror(errno));
	return value;
}

int main(int argc, char **argv)
{
	uint64_t bins = 0, strange = 0, before = 0;
	__u64 offset = 0;
	struct target target = { .known = 1 };
	struct clocks clocks = { 0 };
	struct launchplt_bpf *skel;
	struct pair pair;
	uint32_t key = 0;

	begin();
	file_bytes = argc > 2 ? map_file(argv[1]) : NULL;
	MUST(file_bytes, "usage: launchplt FILE FUNCTION [first|end]");
	target.function = address_of(argv[2]);
	errno = ENOENT;
	MUST(target.function, argv[2]);
	MUST(entry_of(LAUNCH, &target.entry, &offset), LAUNCH);
	if (argc > 3 && !strcmp(argv[3], "first"))
		offset = section_named(".plt")->sh_offset;
	skel = launchplt_bpf__open_and_load();
	MUST(skel, "load");
	MUST(bpf_map_update_elem(bpf_map__fd(skel->maps.target), &key, &target, BPF_ANY) == 0, "target");
	MUST(compare_clocks(&clocks), "clocks");
	MUST(bpf_map_update_elem(bpf_map__fd(skel->maps.clocks), &key, &clocks, BPF_ANY) == 0, "clocks");
	LIBBPF_OPTS(bpf_uprobe_opts, opts, .retprobe = argc > 3 && !strcmp(argv[3], "end"));
	skel->links.on_launch = bpf_program__attach_uprobe_opts(skel->progs.on_launch, -1, argv[1], offset, &opts);
	MUST(skel->links.on_launch, "uprobe");
	MUST(launchplt_bpf__attach(skel) == 0, "attach");
	printf("Monitoring CUDA kernel launch latency\n");
	while (!exiting)
		usleep(50000);
	launchplt_bpf__detach(skel);
	printf("calls %" PRIu64 ", launches %" PRIu64 ", kept %" PRIu64 ", full %" PRIu64 ", without a target %" PRIu64 "\n",
	       read_one(skel->maps.asked, CALLS), read_one(skel->maps.asked, LAUNCHES), read_one(skel->maps.asked, KEPT),
	       read_one(skel->maps.asked, FULL), read_one(skel->maps.asked, NO_TARGET));
	printf("entries %" PRIu64 ", matched %" PRIu64 ", unmatched %" PRIu64 ", wrong %" PRIu64 ", sure and unsure %" PRIu64 "\n",
	       read_one(skel->maps.begun, ENTRIES), read_one(skel->maps.begun, MATCHED), read_one(skel->maps.begun, UNMATCHED),
	       read_one(skel->maps.begun, WRONG), read_one(skel->maps.begun, SURE) + read_one(skel->maps.begun, UNSURE));
	for (uint32_t bin = 0; bin < BINS; bin++)
		bins += read_one(skel->maps.histogram, bin);
	strange += bins != read_one(skel->maps.begun, SURE);
	for (key = 0; key < read_one(skel->maps.begun, MATCHED); key++) {
		MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.pairs), &key, &pair) == 0, "pair");
		strange += pair.number != key + 1 || pair.asked <= before || (int64_t)(pair.began - pair.asked) < clocks.low;
		before = pair.asked;
	}
	printf("strange %" PRIu64 "\n", strange);
	launchplt_bpf__destroy(skel);
	return 0;
}

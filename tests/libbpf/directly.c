// SPDX-License-Identifier: MIT OR Apache-2.0
// Attaches bpftime's two names that are no kernels', and runs those that are kernels themselves, thread by thread, on the CPU. Whoever
// launches them on a GPU then finds other numbers, and is told of their sums.
#include "tool.h"
#include "directly.skel.h"

// As every context of a program on a GPU begins.
struct place {
	uint32_t block[3], block_dim[3], thread[3], grid_dim[3];
};

static int run(struct bpf_program *program, uint32_t columns, uint32_t rows)
{
	struct place at = { .block_dim = { columns, rows, 1 }, .grid_dim = { 1, 1, 1 } };

	for (at.thread[1] = 0; at.thread[1] < rows; at.thread[1]++)
		for (at.thread[0] = 0; at.thread[0] < columns; at.thread[0]++) {
			LIBBPF_OPTS(bpf_test_run_opts, opts, .ctx_in = &at, .ctx_size_in = sizeof(at));

			if (bpf_prog_test_run_opts(bpf_program__fd(program), &opts))
				return -1;
		}
	return 0;
}

static int vectors(struct directly_bpf *skel)
{
	uint32_t n = 1000, key = 0, value, wrong = 0;

	MUST(bpf_map_update_elem(bpf_map__fd(skel->maps.vec_N), &key, &n, BPF_ANY) == 0, "N");
	for (key = 0; key < n; key++) {
		value = 3 * key;
		MUST(bpf_map_update_elem(bpf_map__fd(skel->maps.vec_A), &key, &key, BPF_ANY) == 0, "A");
		MUST(bpf_map_update_elem(bpf_map__fd(skel->maps.vec_B), &key, &value, BPF_ANY) == 0, "B");
	}
	MUST(run(skel->progs.cuda__vec_add, 1024, 1) == 0, "vec_add");
	for (key = 0; key < 1024; key++) {
		MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.vec_C), &key, &value) == 0, "C");
		wrong += value != (key < n ? 4 * key : 0);
	}
	key = 999;
	bpf_map_lookup_elem(bpf_map__fd(skel->maps.vec_C), &key, &value);
	printf("VecAdd C[999]=%u, wrong %u\n", value, wrong);
	return 0;
}

static int matrices(struct directly_bpf *skel)
{
	uint32_t dims[3] = { 32, 32, 32 }, zero = 0, key;
	int value, wrong = 0, sum;

	MUST(bpf_map_update_elem(bpf_map__fd(skel->maps.gemm_dims), &zero, dims, BPF_ANY) == 0, "dims");
	for (key = 0; key < 1024; key++) {
		// Fixed point with 16 bits behind the point.
		value = (key % 5) << 16;
		MUST(bpf_map_update_elem(bpf_map__fd(skel->maps.gemm_A), &key, &value, BPF_ANY) == 0, "A");
		value = -(int)((key % 3) << 16);
		MUST(bpf_map_update_elem(bpf_map__fd(skel->maps.gemm_B), &key, &value, BPF_ANY) == 0, "B");
	}
	MUST(run(skel->progs.cuda__gemm, 32, 32) == 0, "gemm");
	for (key = 0; key < 1024; key++) {
		MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.gemm_C), &key, &value) == 0, "C");
		sum = 0;
		for (int k = 0; k < 32; k++)
			sum -= ((key / 32 * 32 + k) % 5) * ((k * 32 + key % 32) % 3);
		wrong += value != sum * 65536;
	}
	key = 0;
	bpf_map_lookup_elem(bpf_map__fd(skel->maps.gemm_C), &key, &value);
	printf("GEMM C[0]=%d, wrong %d\n", value / 65536, wrong);
	return 0;
}

// Other numbers for who launches the sum of vectors.
static int others(struct directly_bpf *skel)
{
	uint32_t value;

	for (uint32_t key = 0; key < 1024; key++) {
		value = 5 * key;
		MUST(bpf_map_update_elem(bpf_map__fd(skel->maps.vec_B), &key, &value, BPF_ANY) == 0, "B");
	}
	return 0;
}

static int answer(struct directly_bpf *skel)
{
	uint32_t key, value, last = 0, wrong = 0;
	uint64_t runs;

	for (key = 0; key < 1024; key++) {
		MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.vec_C), &key, &value) == 0, "C");
		wrong += value != (key < 1000 ? 6 * key : 0);
		last = key == 999 ? value : last;
	}
	key = 0;
	MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.runs), &key, &runs) == 0, "runs");
	printf("launched: C[999]=%u, wrong %u, runs %lu\n", last, wrong, runs);
	return 0;
}

int main(void)
{
	LIBBPF_OPTS(bpf_test_run_opts, opts, .repeat = 5);
	struct directly_bpf *skel;
	uint64_t runs;
	uint32_t key = 0;

	begin();
	skel = directly_bpf__open_and_load();
	MUST(skel, "load");
	MUST(bpf_prog_test_run_opts(bpf_program__fd(skel->progs.cuda__run), &opts) == 0, "run");
	printf("returned %u, took %s\n", opts.retval, opts.duration ? "some time" : "none");
	if (vectors(skel) || matrices(skel) || others(skel))
		return 1;
	MUST(directly_bpf__attach(skel) == 0, "attach");
	while (!exiting) {
		usleep(50000);
		if (asked) {
			asked = 0;
			// A copy of the device's memory may be as old as this.
			usleep(110000);
			if (answer(skel))
				return 1;
		}
	}
	MUST(bpf_map_lookup_elem(bpf_map__fd(skel->maps.runs), &key, &runs) == 0, "lookup");
	printf("accesses %lu, runs %lu\n", runs / 100000, runs % 100000);
	directly_bpf__destroy(skel);
	return 0;
}

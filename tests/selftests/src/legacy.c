/* Prints the tests of one file of `verifier/`, which are C initialisers, as lines that `legacy.rs` reads. Everything of
 * the test program is taken in but not run: its macros, its struct, its generated programs. */
#define main the_kernels_main
#include "test_verifier.c"
#undef main

static void print_text(const char *key, const char *text)
{
	printf("%s ", key);
	for (; text && *text; text++)
		putchar(*text == '\n' || *text == '\t' ? ' ' : *text);
	putchar('\n');
}

static void print_fixups(const char *key, const int *at)
{
	for (; *at; at++)
		printf("map %s %d\n", key, *at);
}

int main(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(tests); i++) {
		struct bpf_test *test = &tests[i];
		struct bpf_insn *insns = test->insns;
		int count;

		print_text("test", test->descr);
		printf("type %d\n", (int)test->prog_type);
		printf("flags %d\n", (int)test->flags);
		printf("result %d %d\n", (int)test->result, (int)test->result_unpriv);
		print_text("error", test->errstr);
		print_text("error-unprivileged", test->errstr_unpriv);
#define FIXUPS(name) print_fixups(#name, test->fixup_##name)
		FIXUPS(map_hash_8b);
		FIXUPS(map_hash_48b);
		FIXUPS(map_hash_16b);
		FIXUPS(map_array_48b);
		FIXUPS(map_sockmap);
		FIXUPS(map_sockhash);
		FIXUPS(map_xskmap);
		FIXUPS(map_stacktrace);
		FIXUPS(prog1);
		FIXUPS(prog2);
		FIXUPS(map_in_map);
		FIXUPS(cgroup_storage);
		FIXUPS(percpu_cgroup_storage);
		FIXUPS(map_spin_lock);
		FIXUPS(map_array_ro);
		FIXUPS(map_array_wo);
		FIXUPS(map_array_small);
		FIXUPS(sk_storage_map);
		FIXUPS(map_event_output);
		FIXUPS(map_reuseport_array);
		FIXUPS(map_ringbuf);
		FIXUPS(map_timer);
		FIXUPS(map_kptr);
		if (test->fill_helper) {
			test->fill_insns = calloc(MAX_TEST_INSNS, sizeof(struct bpf_insn));
			test->fill_helper(test);
			insns = test->fill_insns;
			count = test->prog_len;
		} else {
			count = test->prog_len ? test->prog_len : probe_filter_length(insns);
		}
		printf("code ");
		for (int at = 0; at < count; at++) {
			const unsigned char *byte = (const unsigned char *)&insns[at];
			for (size_t b = 0; b < sizeof(*insns); b++)
				printf("%02x", byte[b]);
		}
		printf("\n");
	}
	return 0;
}

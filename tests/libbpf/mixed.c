// SPDX-License-Identifier: MIT OR Apache-2.0
// Uses what surrounds maps and programs: pins, ids, batches, freezing, a link that is detached.
#include "tool.h"
#include "mixed.skel.h"

static int walk(void)
{
	uint32_t keys[8], values[8], place = 0, count = 8;
	int hash = bpf_map_create(BPF_MAP_TYPE_HASH, "numbers", 4, 4, 8, NULL);
	LIBBPF_OPTS(bpf_map_batch_opts, none);

	MUST(hash >= 0, "create");
	for (int i = 0; i < 8; i++)
		keys[i] = i, values[i] = i * i;
	MUST(bpf_map_update_batch(hash, keys, values, &count, &none) == 0, "update");
	count = 8;
	bpf_map_lookup_batch(hash, NULL, &place, keys, values, &count, &none);
	for (uint32_t i = 0; i < count; i++)
		if (values[i] != keys[i] * keys[i])
			return 1;
	printf("batch of %u\n", count);
	MUST(bpf_map_freeze(hash) == 0, "freeze");
	printf("frozen: %s\n", bpf_map_update_elem(hash, keys, values, BPF_ANY) ? strerror(errno) : "no");
	close(hash);
	return 0;
}

static int pins(void)
{
	struct bpf_map_info info = {};
	__u32 length = sizeof(info), id = 0, maps = 0;
	char path[64];
	int map = bpf_map_create(BPF_MAP_TYPE_ARRAY, "pinned", 4, 8, 2, NULL), again;

	snprintf(path, sizeof(path), "/sys/fs/bpf/warpbpf-%d", getpid());
	MUST(map >= 0 && bpf_obj_pin(map, path) == 0, "pin");
	close(map);
	again = bpf_obj_get(path);
	MUST(again >= 0 && bpf_obj_get_info_by_fd(again, &info, &length) == 0, "get");
	while (bpf_map_get_next_id(id, &id) == 0)
		maps++;
	printf("pinned %s of %u, %s\n", info.name, info.max_entries, maps >= 1 ? "listed" : "missing");
	close(again);
	unlink(path);
	return 0;
}

int main(void)
{
	struct mixed_bpf *skel;

	begin();
	skel = mixed_bpf__open_and_load();
	MUST(skel, "load");
	MUST(mixed_bpf__attach(skel) == 0, "attach");
	if (walk() || pins())
		return 1;
	while (!exiting)
		usleep(50000);
	printf("gpu %lu, host %lu\n", (unsigned long)skel->bss->gpu, (unsigned long)skel->bss->host);
	mixed_bpf__destroy(skel);
	return 0;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
// Shows a histogram in an array and a sum over a hash, whose odd keys it deletes at last.
#include "tool.h"
#include "sharedmap.skel.h"

int main(void)
{
	struct sharedmap_bpf *skel;
	uint64_t value, sum = 0, left = 0;
	uint32_t key, next;
	int array, hash;

	begin();
	skel = sharedmap_bpf__open_and_load();
	MUST(skel, "load");
	array = bpf_map__fd(skel->maps.counter);
	hash = bpf_map__fd(skel->maps.blocks);
	MUST(sharedmap_bpf__attach(skel) == 0, "attach");
	while (!exiting)
		usleep(50000);
	for (key = 0; key < 10; key++) {
		MUST(bpf_map_lookup_elem(array, &key, &value) == 0, "lookup");
		printf("counter[%u]=%lu\n", key, value);
	}
	for (int more = bpf_map_get_next_key(hash, NULL, &key); more == 0;) {
		MUST(bpf_map_lookup_elem(hash, &key, &value) == 0, "lookup");
		sum += value - 1;
		left++;
		more = bpf_map_get_next_key(hash, &key, &next);
		if (key & 1) {
			MUST(bpf_map_delete_elem(hash, &key) == 0, "delete");
			left--;
		}
		key = next;
	}
	key = 1;
	printf("blocks: calls %lu, left %lu, deleted %d\n", sum, left, bpf_map_lookup_elem(hash, &key, &value));
	sharedmap_bpf__destroy(skel);
	return 0;
}

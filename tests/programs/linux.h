// SPDX-License-Identifier: MIT OR Apache-2.0
// What objects of the tests have that hold programs for Linux and for kernels.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

/* The application's process, which `warpbpf` writes here before the application begins. */
__u32 wbpf_app_pid;
/* The call that is counted. */
const volatile __u32 call;

/* 0: Linux and threads of the GPU, 1: the GPU alone, 2: Linux alone. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 3);
	__type(key, __u32);
	__type(value, __u64);
} array SEC(".maps");

static __always_inline int of_app(void)
{
	return bpf_get_current_pid_tgid() >> 32 == wbpf_app_pid;
}

static __always_inline void add(void *map, __u32 key)
{
	__u64 zero = 0, *value = bpf_map_lookup_elem(map, &key);

	if (!value) {
		/* Whoever comes second finds the first one's. */
		bpf_map_update_elem(map, &key, &zero, BPF_NOEXIST);
		value = bpf_map_lookup_elem(map, &key);
	}
	if (value)
		__sync_fetch_and_add(value, 1);
}

SEC("gpu/entry/*")
int in_kernel(void *ctx)
{
	add(&array, 0);
	add(&array, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

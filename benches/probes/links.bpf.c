// SPDX-License-Identifier: MIT OR Apache-2.0
// Several programs in one kernel, each with a counter of its own.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#ifndef LINKS
#define LINKS 16
#endif

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LINKS);
	__type(key, __u32);
	__type(value, __u64);
} hits SEC(".maps");

#define PROGRAM(n)                                                      \
	SEC("gpu/entry/probed")                                         \
	int link_##n(void *ctx)                                         \
	{                                                               \
		__u32 key = n;                                          \
		__u64 *hits_of_one = bpf_map_lookup_elem(&hits, &key);  \
                                                                        \
		if (hits_of_one)                                        \
			__sync_fetch_and_add(hits_of_one, 1);           \
		return 0;                                               \
	}

PROGRAM(0)
#if LINKS > 1
PROGRAM(1)
PROGRAM(2)
PROGRAM(3)
#endif
#if LINKS > 4
PROGRAM(4)
PROGRAM(5)
PROGRAM(6)
PROGRAM(7)
PROGRAM(8)
PROGRAM(9)
PROGRAM(10)
PROGRAM(11)
PROGRAM(12)
PROGRAM(13)
PROGRAM(14)
PROGRAM(15)
#endif

char LICENSE[] SEC("license") = "Dual MIT/GPL";

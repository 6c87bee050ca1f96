// SPDX-License-Identifier: MIT OR Apache-2.0
// Linux's verifier refuses it: a value that may be null.
#include "linux.h"

SEC("raw_tp/sys_enter")
int on_call(void *ctx)
{
	__u32 key = 2;
	__u64 *value = bpf_map_lookup_elem(&array, &key);

	*value += 1;
	return 0;
}

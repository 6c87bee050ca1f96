// SPDX-License-Identifier: MIT OR Apache-2.0
// The same with room for thousands of records.
#define RING (1 << 18)
#include "userring.bpf.c"

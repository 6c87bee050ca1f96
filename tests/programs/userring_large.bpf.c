// SPDX-License-Identifier: MIT OR Apache-2.0
// The same with room for hundreds of thousands of records.
#define RING (1 << 24)
#include "userring.bpf.c"

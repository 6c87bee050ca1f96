// SPDX-License-Identifier: MIT OR Apache-2.0
// The program of the suite's user ring, as a tool of libbpf gives it to Linux: such a map has no value.
#define NO_VALUE
#include "../programs/userring.bpf.c"

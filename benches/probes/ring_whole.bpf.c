// SPDX-License-Identifier: MIT OR Apache-2.0
// As ring.bpf.c, with events of 32 bytes without their header.
#define WHOLE
#include "ring.bpf.c"

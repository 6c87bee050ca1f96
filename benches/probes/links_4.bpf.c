// SPDX-License-Identifier: MIT OR Apache-2.0
// The same with as many programs as its name says.
#define LINKS 4
#include "links.bpf.c"

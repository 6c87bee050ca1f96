// SPDX-License-Identifier: MIT OR Apache-2.0
// As graphnodes.bpf.c, with what needs a launch record beside it.
#define WITH_EXIT
#include "graphnodes.bpf.c"

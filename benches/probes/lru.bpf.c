// SPDX-License-Identifier: MIT OR Apache-2.0
// As hash.bpf.c, with an LRU hash.
#define TYPE BPF_MAP_TYPE_LRU_HASH
#include "hash.bpf.c"

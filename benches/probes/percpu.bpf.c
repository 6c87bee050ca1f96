// SPDX-License-Identifier: MIT OR Apache-2.0
// As hash.bpf.c, with a value for each multiprocessor: one that has not put the key in finds 0.
#define TYPE BPF_MAP_TYPE_PERCPU_HASH
#define IS_OF(value, n) ((__u32)(value) == (__u32)(n) || (__u32)(value) == 0)
#include "hash.bpf.c"

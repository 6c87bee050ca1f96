// SPDX-License-Identifier: MIT OR Apache-2.0
// With Linux's hashes.
#define HASH BPF_MAP_TYPE_HASH
#include "scheduling.bpf.h"

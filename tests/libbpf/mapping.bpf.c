// SPDX-License-Identifier: MIT OR Apache-2.0
// With bpftime's own.
#define HASH 1501
#include "scheduling.bpf.h"

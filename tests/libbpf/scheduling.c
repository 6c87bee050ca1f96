// SPDX-License-Identifier: MIT OR Apache-2.0
#include "scheduling.skel.h"
#define OBJECT(name) scheduling_##name
#include "scheduling.tool.h"

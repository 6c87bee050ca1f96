// SPDX-License-Identifier: MIT OR Apache-2.0
#include "mapping.skel.h"
#define OBJECT(name) mapping_##name
#include "scheduling.tool.h"

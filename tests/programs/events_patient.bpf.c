// SPDX-License-Identifier: MIT OR Apache-2.0
// Writers wait as long as they may: a tool that reads gets everything.
#define WAIT_US 1000000
#include "events.bpf.c"

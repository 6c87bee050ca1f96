// SPDX-License-Identifier: MIT OR Apache-2.0
// Writers wait a little: where nobody reads they go on soon.
#define WAIT_US 5000
#include "events.bpf.c"

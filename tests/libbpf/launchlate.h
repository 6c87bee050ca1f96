// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#define BINS 10

struct event {
	__u64 time, function;
	__u32 pid, unused;
	char name[16];
};

// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#define BINS 10
#define PAIRS 64

// A launch: when it was asked for by the CPU's clock and when it began by the device's, with its number, from 1 on.
struct pair {
	__u64 asked, number, began;
};

// Where the file has the entry and the function that stands for the kernel.
struct target {
	__u64 entry, function, known;
};

// Between these lies the device's clock less the CPU's.
struct clocks {
	__s64 low, high;
	__u64 known;
};

// What the CPU counts,
enum { CALLS, LAUNCHES, KEPT, FULL, NO_TARGET, ASKED };
// and what the device.
enum { ENTRIES, MATCHED, UNMATCHED, SURE, UNSURE, WRONG, BEGUN };

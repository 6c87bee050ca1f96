// SPDX-License-Identifier: MIT OR Apache-2.0
struct record {
	unsigned long long block, thread, time;
};

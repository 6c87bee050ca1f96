// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

struct left {
	__u64 block_x, block_y, block_z;
	__u64 thread_x, thread_y, thread_z;
	__u64 timestamp;
};

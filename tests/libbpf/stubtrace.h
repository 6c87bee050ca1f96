// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

struct event {
	__u64 block[3], thread[3], time;
};

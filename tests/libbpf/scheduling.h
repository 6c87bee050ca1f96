// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

struct place {
	__u64 sm_id, warp_id, lane_id, block[3], thread[3], timestamp;
};

/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Launches by %gridid, the only number of a launch that programs have in machine code, too. Entries are put in and stay, so that all that ask for one
 * find the same, whoever asks first. */
#ifndef TORCH_LAUNCHES_H
#define TORCH_LAUNCHES_H

/* Kernels by number; what is counted of those beyond is missing, and the report says so. As many as a map may have that is summed over the
 * multiprocessors of a large GPU. */
#define KERNELS 12288

/* Neighbouring numbers lie far from each other, as do those a power of two apart. */
static __always_inline __u32 place_of(__u64 grid, __u32 bits)
{
	return grid * 0x9e3779b97f4a7c15ULL >> (64 - bits);
}

static __always_inline __u32 count(__u32 m)
{
	m = m - ((m >> 1) & 0x55555555);
	m = (m & 0x33333333) + ((m >> 2) & 0x33333333);
	return (((m + (m >> 4)) & 0x0f0f0f0f) * 0x01010101) >> 24;
}

#endif

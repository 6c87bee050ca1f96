/* Stands in for the header that bpftool makes from the running kernel's types: what the selftests use of it and the
 * kernel's public headers have. A test that needs a kernel struct does not compile with this, and is left out. */
#pragma once
#include <stddef.h>
#include <stdbool.h>
#include <linux/types.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/bpf_perf_event.h>
typedef __u8 u8;
typedef __s8 s8;
typedef __u16 u16;
typedef __s16 s16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;
/* x86-64's. */
#define bpf_user_pt_regs_t struct pt_regs

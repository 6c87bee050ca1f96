// SPDX-License-Identifier: MIT OR Apache-2.0
// Launches of a kernel that is a template of templates, counted by its first thread, and its threads by all.
#include "cutlass.bpf.h"

// The kernel's name: 1,871 characters, most of them the numbers 0 to 299 among its template's arguments.
#define NAME(steps)                                                                              \
	"_ZN5tiles6KernelINS_4gemm4GemmINS_9GemmShapeILi16ELi16ELi8EEEffNS_6layout8RowMajorENS5_11ColumnMajorENS_8epilogue"  \
	"17LinearCombinationIfLi1EEESt16integer_sequenceIiJ" steps "EEEEEEvNT_6ParamsE"
#define TEN(t)                                                                                   \
	"Li" t "0ELi" t "1ELi" t "2ELi" t "3ELi" t "4ELi" t "5ELi" t "6ELi" t "7ELi" t "8ELi" t "9E"
#define TENS(t)                                                                                  \
	TEN(t "1") TEN(t "2") TEN(t "3") TEN(t "4") TEN(t "5") TEN(t "6") TEN(t "7") TEN(t "8") TEN(t "9")

SEC("kretprobe/" NAME(TEN("") TENS("") TEN("10") TENS("1") TEN("20") TENS("2")))
int cuda__cutlass_launch(void *ctx)
{
	return count_launch();
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

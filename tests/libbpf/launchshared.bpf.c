// SPDX-License-Identifier: MIT OR Apache-2.0
// How long after the application asked for it a kernel begins, with maps that the application, the kernel and the tool share (1504):
// a probe on the CPU writes when, by its own clock; the kernel's threads read the device's clock and bring it to the CPU's by an offset
// that the tool has measured.
#define __TARGET_ARCH_x86
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define BINS 10

static __u64 (*bpf_get_globaltimer)(void) = (void *)502;

#define SHARED(name, entries, of)                                                                \
	struct {                                                                                 \
		__uint(type, 1504);                                                              \
		__uint(max_entries, entries);                                                    \
		__type(key, __u32);                                                              \
		__type(value, of);                                                               \
	} name SEC(".maps")

SHARED(last_launch, 1, __u64);
// The CPU's clock less the device's.
SHARED(clock_offset, 1, __s64);
// Behind the bins: threads that began before they were asked for.
SHARED(histogram, BINS + 1, __u64);

// The tool may name another function.
SEC("uprobe/./vec_add:_Z16cudaLaunchKernelIcE9cudaErrorPT_4dim3S3_PPvmP11CUstream_st")
int on_launch(struct pt_regs *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 key = 0;

	bpf_map_update_elem(&last_launch, &key, &now, BPF_ANY);
	return 0;
}

// By its name in C++: the applications that are traced differ in its parameters.
SEC("kprobe/vectorAdd")
int cuda__enter(void)
{
	__u64 now = bpf_get_globaltimer(), *last, *bin, width = 100;
	__s64 *offset;
	__u32 key = 0;

	last = bpf_map_lookup_elem(&last_launch, &key);
	offset = bpf_map_lookup_elem(&clock_offset, &key);
	if (!last || !offset)
		return 0;
	now += *offset;
	if ((__s64)(now - *last) < 0) {
		key = BINS;
	} else {
		now -= *last;
		for (; key < BINS - 1 && now >= width; key++)
			width *= 10;
	}
	bin = bpf_map_lookup_elem(&histogram, &key);
	if (bin)
		__sync_fetch_and_add(bin, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

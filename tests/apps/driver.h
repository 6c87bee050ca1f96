// What the programs have in common that call the driver's functions by their symbols: what those return is looked at; and a kernel as PTX text.
#pragma once
#include <string>

#include "check.h"

#define DO(call)                                                                                          \
    do {                                                                                                  \
        CUresult code = (call);                                                                           \
        if (code != CUDA_SUCCESS) {                                                                       \
            fprintf(stderr, "%s: %s: %d\n", program_invocation_short_name, #call, (int)code);             \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

// A kernel of this name. The word of a thread `i` becomes `word * factor + i`.
static std::string scale_text(const char *name)
{
    return std::string(".version 7.8\n.target sm_75\n.address_size 64\n.visible .entry ") + name + R"((.param .u64 data, .param .u32 factor)
{
	.reg .u64 %rd<4>;
	.reg .u32 %r<6>;
	ld.param.u64 %rd1, [data];
	ld.param.u32 %r1, [factor];
	cvta.to.global.u64 %rd1, %rd1;
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mov.u32 %r4, %tid.x;
	mad.lo.u32 %r2, %r2, %r3, %r4;
	mul.wide.u32 %rd2, %r2, 4;
	add.u64 %rd2, %rd1, %rd2;
	ld.global.u32 %r5, [%rd2];
	mad.lo.u32 %r5, %r5, %r1, %r2;
	st.global.u32 [%rd2], %r5;
	ret;
}
)";
}

// The kernels of tests/apps/conditional.cu that say whether bodies run, in a part of their own: they call CUDA's functions for devices, which needs
// relocatable code.
#include <cuda_runtime.h>

__global__ void decide(cudaGraphConditionalHandle again, cudaGraphConditionalHandle odd, unsigned *left)
{
    unsigned now = *left - 1;

    *left = now;
    cudaGraphSetConditional(again, now != 0);
    cudaGraphSetConditional(odd, now & 1);
}

extern const void *const decider;
const void *const decider = (const void *)decide;

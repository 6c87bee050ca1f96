// Kernels that launch kernels: relocatable code, linked with CUDA's device runtime. A kernel that launches others is not
// instrumented through its PTX, since what it launches is named by an address of its own module; it must run untouched.
#include "corpus.h"

__global__ void launchedChild(int *out, int factor) { out[threadIdx.x] = threadIdx.x * factor; }

__global__ void launchFromKernel(int *out, int factor)
{
    if (threadIdx.x == 0)
        launchedChild<<<1, 32>>>(out, factor);
}

__global__ void launchTail(int *out)
{
    out[32 + threadIdx.x] = 5;
    if (threadIdx.x == 0)
        launchedChild<<<1, 32, 0, cudaStreamTailLaunch>>>(out, 4);
}

static const corpus::Case cases[] = {
    {"launchFromKernel",
     [] {
         Buffer<int> out(32);
         launchFromKernel<<<1, 32>>>(out.device, 3);
         report("launchFromKernel", out, [](uint32_t i) { return (int)i * 3; });
     }},
    {"launchTail",
     [] {
         Buffer<int> out(64);
         launchTail<<<1, 32>>>(out.device);
         report("launchTail", out, [](uint32_t i) { return i < 32 ? (int)i * 4 : 5; });
     }},
};

int main(int argc, char **argv) { return corpus::run(argc, argv, cases); }

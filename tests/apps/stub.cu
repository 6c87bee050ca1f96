// Kernels that call bpftime's stub where they want to be traced, by its name in C and by one in C++: in each thread, and in the first
// kernel once more in even ones. Without a tool the calls do nothing.
// usage: stub [launches] [blocks] [threads per block]
#include <cstdio>
#include <cstdlib>
#include <vector>
#include "check.h"

// Not nothing: the compiler would leave out calls of a function without an effect.
extern "C" __device__ __noinline__ void __bpftime_cuda__kernel_trace() { asm volatile(""); }
__device__ __noinline__ void __bpftime_cuda__kernel_trace(int) { asm volatile(""); }

namespace another {
__device__ __noinline__ void __bpftime_cuda__kernel_trace() { asm volatile(""); }
}

__global__ void traced(int *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __bpftime_cuda__kernel_trace();
    if (i % 2 == 0) {
        out[i] = i;
        __bpftime_cuda__kernel_trace();
    }
}

__global__ void mangled(int *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __bpftime_cuda__kernel_trace(i);
    out[i] += 1;
}

// Its stub is not bpftime's.
__global__ void untraced(int *out)
{
    another::__bpftime_cuda__kernel_trace();
    out[blockIdx.x * blockDim.x + threadIdx.x] += 1;
}

int main(int argc, char **argv)
{
    int launches = argc > 1 ? atoi(argv[1]) : 1;
    int blocks = argc > 2 ? atoi(argv[2]) : 32;
    int threads = argc > 3 ? atoi(argv[3]) : 128;
    int n = blocks * threads;
    std::vector<int> out(n);
    int *device;
    CHECK(cudaMalloc(&device, n * sizeof(int)));
    CHECK(cudaMemset(device, 0, n * sizeof(int)));
    for (int i = 0; i < launches; i++) {
        traced<<<blocks, threads>>>(device);
        mangled<<<blocks, threads>>>(device);
        untraced<<<blocks, threads>>>(device);
        CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaMemcpy(out.data(), device, n * sizeof(int), cudaMemcpyDeviceToHost));
    long sum = 0;
    for (int value : out)
        sum += value;
    printf("stub: %d launches of %d threads, sum %ld\n", launches, n, sum);
    return 0;
}

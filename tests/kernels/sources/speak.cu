// printf and assert: calls with variable arguments, and a thread that ends the launch.
#include <cassert>

#include "corpus.h"

// One thread speaks, so that the lines have one order.
__global__ void printKinds(int *out)
{
    out[threadIdx.x] = threadIdx.x * 3;
    if (threadIdx.x == 5)
        printf("kinds: %d %u %lld %x %c %s %.3f %e %5d|%-5d|%05d %%\n", -5, 7u, 1ll << 40, 0xbeef, 'w', "text", 3.25, 1e10,
               42, 42, 42);
}

__global__ void printLoop(int n)
{
    for (int i = 0; i < n; i++) {
        if (threadIdx.x == i * 7 % 32)
            printf("round %d by thread %d of %d\n", i, threadIdx.x, blockDim.x);
        __syncwarp();
    }
}

__device__ __noinline__ int told(int value)
{
    printf("told %d\n", value);
    return value * value;
}

__global__ void printInFunction(int *out) { *out = told(3) + told(4); }

__global__ void assertHolds(const int *in, int *out)
{
    assert(in[threadIdx.x] >= 0);
    out[threadIdx.x] = in[threadIdx.x] + 1;
    assert(out[threadIdx.x] != 0 && "never");
}

__global__ void assertInLoop(int *out)
{
    int sum = 0;
    for (int i = 0; i < 10; i++) {
        assert(sum < 1000);
        sum += i * threadIdx.x;
    }
    out[threadIdx.x] = sum;
}

__global__ void assertFires(int *out)
{
    out[threadIdx.x] = 1;
    assert(threadIdx.x != 33);
    out[threadIdx.x] = 2;
}

static const corpus::Case cases[] = {
    {"printKinds",
     [] {
         Buffer<int> out(32);
         printKinds<<<1, 32>>>(out.device);
         report("printKinds", out, [](uint32_t i) { return (int)i * 3; });
     }},
    {"printLoop",
     [] {
         printLoop<<<1, 32>>>(6);
         CHECK(cudaDeviceSynchronize());
         corpus::print("printLoop", std::vector<int>());
     }},
    {"printInFunction",
     [] {
         Buffer<int> out(1);
         printInFunction<<<1, 1>>>(out.device);
         report("printInFunction", out, [](uint32_t) { return 25; });
     }},
    {"assertHolds",
     [] {
         Buffer<int> in(64, [](uint32_t i) { return (int)i; }), out(64);
         assertHolds<<<1, 64>>>(in.device, out.device);
         report("assertHolds", out, [](uint32_t i) { return (int)i + 1; });
     }},
    {"assertInLoop",
     [] {
         Buffer<int> out(16);
         assertInLoop<<<1, 16>>>(out.device);
         report("assertInLoop", out, [](uint32_t i) { return 45 * (int)i; });
     }},
    // The last one: a context is of no use after it.
    {"assertFires",
     [] {
         int *out;
         CHECK(cudaMalloc(&out, 64 * sizeof(int)));
         assertFires<<<1, 64>>>(out);
         printf("assertFires: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
     }},
};

int main(int argc, char **argv) { return corpus::run(argc, argv, cases); }

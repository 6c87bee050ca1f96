// Launches that are at once for certain: each is in a stream of its own, and no block of one ends before all blocks of all have begun. `meeting LAUNCHES BLOCKS`
// says in how many threads that was so; after ten seconds a block waits no longer, so that something that runs them one after the other ends, too.
#include <vector>

#include "check.h"

__device__ unsigned long long now()
{
    unsigned long long ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}

__global__ void meet(unsigned *begun, unsigned *met, unsigned all)
{
    unsigned long long start = now();

    if (threadIdx.x == 0)
        atomicAdd(begun, 1);
    while (*(volatile unsigned *)begun < all)
        if (now() - start > 10000000000)
            return;
    atomicAdd(met, 1);
}

int main(int argc, char **argv)
{
    unsigned launches = argc > 1 ? atoi(argv[1]) : 2, blocks = argc > 2 ? atoi(argv[2]) : 3, met, *counts;
    std::vector<cudaStream_t> streams(launches);

    CHECK(cudaMalloc(&counts, 2 * sizeof(*counts)));
    CHECK(cudaMemset(counts, 0, 2 * sizeof(*counts)));
    // A launch that is the first one of its kernel may wait for all that runs (lazy loading).
    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, meet));
    CHECK(cudaDeviceSynchronize());
    for (cudaStream_t &stream : streams) {
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        meet<<<blocks, 64, 0, stream>>>(counts, counts + 1, launches * blocks);
        CHECK(cudaGetLastError());
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&met, counts + 1, sizeof(met), cudaMemcpyDeviceToHost));
    printf("%u\n", met);
    return 0;
}

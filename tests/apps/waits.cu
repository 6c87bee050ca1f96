// Kernels in which some threads come STEPS dependent steps late to a barrier that the others wait at, a kernel for each kind
// of barrier. tests/suite/src/waits.rs knows who waits.
#include "check.h"

constexpr int BLOCKS = 4, THREADS = 128, TOTAL = BLOCKS * THREADS, STEPS = 20000;

__device__ unsigned late(unsigned value)
{
#pragma unroll 1
    for (int k = 0; k < STEPS; k++)
        value = value * 1664525 + k;
    return value;
}

__device__ int linear() { return blockIdx.x * blockDim.x + threadIdx.x; }

// Each of these: the threads of warp 0 come late.
__global__ void by_sync(unsigned *out)
{
    unsigned mine = linear();
    if (threadIdx.x < 32)
        mine = late(mine);
    asm volatile("barrier.sync 3;" ::: "memory");
    out[linear()] = mine;
}

__global__ void by_reduction(unsigned *out)
{
    unsigned mine = linear(), odd;
    if (threadIdx.x < 32)
        mine = late(mine);
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; barrier.red.popc.u32 %0, 2, p; }"
                 : "=r"(odd)
                 : "r"(mine & 1)
                 : "memory");
    out[linear()] = mine + odd;
}

// Lanes 0 to 7 of each warp come late, to a barrier of their own: behind one `if` the compiler would let all lanes meet first. The
// others wait only if they run first, which is the hardware's choice.
__global__ void by_warp(unsigned *out)
{
    unsigned mine = linear();
    if (threadIdx.x % 32 < 8) {
        mine = late(mine);
        asm volatile("bar.warp.sync 0xffffffff; // late" ::: "memory");
        out[linear()] = mine;
    } else {
        asm volatile("bar.warp.sync 0xffffffff; // waiting" ::: "memory");
        out[linear()] = mine + 1;
    }
}

// Block 0 of each cluster of two comes late.
__global__ void by_cluster(unsigned *out)
{
    unsigned mine = linear();
    if (blockIdx.x % 2 == 0)
        mine = late(mine);
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release;\n\t"
                 "barrier.cluster.wait.acquire;" ::: "memory");
#endif
    out[linear()] = mine;
}

// All but warp 0 wait for its arrival, by tries that may come back early.
__global__ void by_mbarrier(unsigned *out)
{
#if __CUDA_ARCH__ >= 900
    __shared__ unsigned long long barrier;
    unsigned mine = linear(), at = __cvta_generic_to_shared(&barrier);
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(at) : "memory");
    __syncthreads();
    if (threadIdx.x < 32) {
        mine = late(mine);
        asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(at) : "memory");
    } else {
        asm volatile("{ .reg .pred done;\n\t"
                     "AGAIN: mbarrier.try_wait.parity.shared.b64 done, [%0], 0;\n\t"
                     "@!done bra AGAIN; }" ::"r"(at) : "memory");
    }
    out[linear()] = mine;
#endif
}

static void run(const char *name, void (*kernel)(unsigned *), unsigned cluster = 1)
{
    unsigned *device, host[TOTAL];
    CHECK(cudaMalloc(&device, sizeof(host)));
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {cluster, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = BLOCKS;
    config.blockDim = THREADS;
    config.attrs = &attribute;
    config.numAttrs = cluster > 1;
    CHECK(cudaLaunchKernelEx(&config, kernel, device));
    CHECK(cudaMemcpy(host, device, sizeof(host), cudaMemcpyDeviceToHost));
    CHECK(cudaFree(device));
    unsigned long long sum = 0;
    for (unsigned value : host)
        sum = sum * 31 + value;
    printf("%s %016llx\n", name, sum);
}

int main()
{
    run("sync", by_sync);
    run("reduction", by_reduction);
    run("warp", by_warp);
    run("cluster", by_cluster, 2);
    run("mbarrier", by_mbarrier);
    return 0;
}

// What an application asks about its kernels to size its launches by: attributes, blocks and clusters that fit, block sizes. It launches with what it was told.
#include "check.h"

extern __shared__ unsigned scratch[];

// Enough values at once that a program beside them needs registers of its own.
__global__ void probedWork(unsigned *out, unsigned rounds)
{
    unsigned values[16], i = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned k = 0; k < 16; k++)
        values[k] = i * (k + 3);
    for (unsigned round = 0; round < rounds; round++)
#pragma unroll
        for (unsigned k = 0; k < 16; k++)
            values[k] = values[k] * 5 + values[(k + 7) % 16];
    scratch[threadIdx.x] = i;
    __syncthreads();
    for (unsigned value : values)
        atomicAdd(&out[value % 64], scratch[blockDim.x - 1 - threadIdx.x]);
}

static void ask(const char *when)
{
    cudaFuncAttributes told;
    int blocks, least, most;
    size_t room;
    CHECK(cudaFuncGetAttributes(&told, probedWork));
    printf("%s: %d registers, %zu local, %zu shared, %zu constant, at most %d threads, %d and %d dynamic, code %d of %d\n", when, told.numRegs,
           told.localSizeBytes, told.sharedSizeBytes, told.constSizeBytes, told.maxThreadsPerBlock, told.maxDynamicSharedSizeBytes,
           told.preferredShmemCarveout, told.binaryVersion, told.ptxVersion);
    for (int threads = 32; threads <= 1024; threads *= 2)
        for (size_t shared : { 4096, 32768 }) {
            CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, probedWork, threads, shared));
            printf("%s: %d blocks of %d threads with %zu bytes\n", when, blocks, threads, shared);
        }
    CHECK(cudaOccupancyMaxPotentialBlockSize(&least, &most, probedWork, 4096, 0));
    CHECK(cudaOccupancyAvailableDynamicSMemPerBlock(&room, probedWork, 2, 256));
    printf("%s: %d blocks of %d threads fill the device, %zu bytes for each of two\n", when, least, most, room);
    for (unsigned size = 1; size <= 8; size *= 2) {
        cudaLaunchAttribute cluster = {};
        cluster.id = cudaLaunchAttributeClusterDimension;
        cluster.val.clusterDim.x = size;
        cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
        cudaLaunchConfig_t config = {};
        int clusters;
        config.gridDim = dim3(size * 4);
        config.blockDim = dim3(128);
        config.dynamicSmemBytes = 4096;
        config.attrs = &cluster;
        config.numAttrs = 1;
        CHECK(cudaOccupancyMaxActiveClusters(&clusters, probedWork, &config));
        printf("%s: %d clusters of %u\n", when, clusters, size);
    }
}

static unsigned long long threads;
static unsigned launches;

// As many blocks as run at once, which may wait for each other, by what the application was told.
static void fill(unsigned *out, unsigned block)
{
    int blocks, device, multiprocessors;
    unsigned rounds = 3, values[64], sum = 0;
    void *params[] = { &out, &rounds };
    CHECK(cudaGetDevice(&device));
    CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, probedWork, block, 4096));
    CHECK(cudaLaunchCooperativeKernel((void *)probedWork, dim3(blocks * multiprocessors), dim3(block), params, 4096, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(values, out, sizeof(values), cudaMemcpyDeviceToHost));
    for (unsigned value : values)
        sum = sum * 31 + value;
    printf("%d blocks of %u threads on %d multiprocessors: %08x\n", blocks, block, multiprocessors, sum);
    threads += (unsigned long long)blocks * multiprocessors * block;
    launches++;
}

int main()
{
    unsigned *out;
    CHECK(cudaMalloc(&out, 64 * 4));
    CHECK(cudaMemset(out, 0, 64 * 4));
    ask("before");
    fill(out, 64);
    fill(out, 512);
    ask("after launches");
    CHECK(cudaFuncSetAttribute(probedWork, cudaFuncAttributeMaxDynamicSharedMemorySize, 32768));
    ask("after a change");
    // One that is no question of residence.
    probedWork<<<3, 96, 4096>>>(out, 2);
    CHECK(cudaDeviceSynchronize());
    printf("%u launches of %llu threads, and one of %d\n", launches, threads, 3 * 96);
    return 0;
}

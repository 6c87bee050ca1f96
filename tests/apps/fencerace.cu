// A kernel that never ends while memory comes and goes: the address of it stands in a slot even after it is gone. A probe
// that follows the slot must find all of it or nothing. Prints how often the memory was taken away. With `unfenced` the kernel
// follows the slot itself, by a plain load, as a probe without a fence would: that must not end well.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>

#include "check.h"

// As in fencerace.bpf.c.
struct Slot {
    unsigned long long address;
    unsigned int stop;
};

__global__ void spin(volatile Slot *slot, unsigned int *rounds)
{
    unsigned int n = 0;
    // The limit is for a host that waits for kernels before it takes memory away.
    for (; n < 50000000 && !slot->stop; n++)
        ;
    atomicMax(rounds, n);
}

__global__ void follow(volatile Slot *slot, unsigned int *rounds)
{
    unsigned int n = 0, sum = 0;
    for (; n < 50000000 && !slot->stop; n++)
        sum += *(volatile unsigned int *)slot->address;
    atomicMax(rounds, n + (sum == 1));
}

int main(int count, char **arguments)
{
    int turns = count > 1 ? atoi(arguments[1]) : 500;
    Slot *slot;
    unsigned int *rounds, most;
    CHECK(cudaSetDevice(0));
    CHECK(cudaHostAlloc((void **)&slot, sizeof(Slot), cudaHostAllocMapped));
    CHECK(cudaMalloc((void **)&rounds, 4));
    CHECK(cudaMemset(rounds, 0, 4));
    *slot = {};

    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access = {};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    size_t piece = 0;
    CUdeviceptr window = 0;
    CUmemGenericAllocationHandle memory = 0;
    cudaStream_t copies;
    CHECK(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
    DRIVER(cuMemGetAllocationGranularity, &piece, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    DRIVER(cuMemAddressReserve, &window, piece, 0, 0, 0);
    slot->address = window + 256;

    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (count > 2 && strcmp(arguments[2], "unfenced") == 0)
        follow<<<64, 128, 0, stream>>>(slot, rounds);
    else
        spin<<<64, 128, 0, stream>>>(slot, rounds);
    CHECK(cudaGetLastError());
    double taking = 0;
    for (int turn = 0; turn < turns; turn++) {
        DRIVER(cuMemCreate, &memory, piece, &properties, 0);
        DRIVER(cuMemMap, window, piece, 0, memory, 0);
        DRIVER(cuMemRelease, memory);
        DRIVER(cuMemSetAccess, window, piece, &access, 1);
        auto begun = std::chrono::steady_clock::now();
        while (std::chrono::steady_clock::now() - begun < std::chrono::microseconds(200))
            ;
        begun = std::chrono::steady_clock::now();
        DRIVER(cuMemUnmap, window, piece);
        taking += std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begun).count();
    }
    slot->stop = 1;
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&most, rounds, 4, cudaMemcpyDefault));
    printf("taken away %d times\n", turns);
    fprintf(stderr, "rounds %u, %.1f us each time\n", most, taking / turns);
    return 0;
}

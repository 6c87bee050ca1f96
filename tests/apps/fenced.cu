// Memory of every kind, each with an address that a probe is to read and what it must find there. The kernel adds up what
// it is told; the output must not change with probes.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>

#include "check.h"

// As in fenced.bpf.c.
struct Ask {
    unsigned long long address;
    unsigned long long expected;
    int result;
    unsigned int space;
};

const int MOST = 64;
const unsigned long long MAGIC = 0x0123456789abcdefull;

__device__ unsigned long long variable[3];
__constant__ unsigned long long constants[3];

// Each thread has one request; what it adds up is none of the probe's business.
__global__ void ask(const Ask *asks, int count, unsigned long long *sum)
{
    __shared__ unsigned long long part[MOST];
    int i = threadIdx.x;
    part[i] = i < count ? asks[i].expected : 0;
    __syncthreads();
    for (int step = MOST / 2; step > 0; step /= 2) {
        if (i < step)
            part[i] += part[i + step];
        __syncthreads();
    }
    if (i == 0)
        *sum = part[0];
}

static Ask asks[MOST];
static int count;

static void expect(unsigned long long address, int result, unsigned int space = 0)
{
    asks[count++] = {address, result ? 0 : MAGIC, result, space};
}

static void there(const void *address)
{
    expect((unsigned long long)address, 0);
}

static void gone(const void *address)
{
    expect((unsigned long long)address, -14);
}

// Device memory of 24 bytes whose last eight hold what is looked for.
static void fill(void *memory)
{
    unsigned long long bytes[3] = {1, 2, MAGIC};
    CHECK(cudaMemcpy(memory, bytes, sizeof(bytes), cudaMemcpyDefault));
}

int main()
{
    char *plain, *freed, *managed, *pinned, *unpinned, *pooled, *unpooled, *pitched;
    size_t pitch;
    // First, so that none of them gets an address that another gave back.
    unsigned long long *sum, answer;
    Ask *on_device;
    CHECK(cudaMalloc((void **)&sum, 8));
    CHECK(cudaMalloc((void **)&on_device, sizeof(asks) + 8)); // does not touch what follows
    CHECK(cudaMalloc((void **)&plain, 24));
    CHECK(cudaMalloc((void **)&freed, 1 << 20));
    CHECK(cudaMallocManaged((void **)&managed, 24));
    CHECK(cudaMallocHost((void **)&pinned, 24));
    CHECK(cudaMallocHost((void **)&unpinned, 24));
    CHECK(cudaMallocAsync((void **)&pooled, 24, 0));
    CHECK(cudaMallocAsync((void **)&unpooled, 24, 0));
    CHECK(cudaMallocPitch((void **)&pitched, &pitch, 24, 3));
    CHECK(cudaStreamSynchronize(0));
    char *own = (char *)aligned_alloc(4096, 8192), *unregistered = (char *)aligned_alloc(4096, 8192);
    CHECK(cudaHostRegister(own, 4096, cudaHostRegisterDefault));
    CHECK(cudaHostRegister(unregistered, 4096, cudaHostRegisterDefault));
    char *symbol, *constant;
    CHECK(cudaGetSymbolAddress((void **)&symbol, variable));
    CHECK(cudaGetSymbolAddress((void **)&constant, constants));

    // Four pieces of addresses: mapped, mapped without access, unmapped again, never mapped.
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access = {};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    size_t piece = 0;
    CUdeviceptr window = 0;
    CUmemGenericAllocationHandle memory = 0;
    DRIVER(cuMemGetAllocationGranularity, &piece, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    DRIVER(cuMemAddressReserve, &window, 4 * piece, 0, 0, 0);
    for (int i = 0; i < 3; i++) {
        DRIVER(cuMemCreate, &memory, piece, &properties, 0);
        DRIVER(cuMemMap, window + i * piece, piece, 0, memory, 0);
        DRIVER(cuMemRelease, memory);
        if (i != 1)
            DRIVER(cuMemSetAccess, window + i * piece, piece, &access, 1);
    }
    fill((char *)window + piece - 24);
    DRIVER(cuMemUnmap, window + 2 * piece, piece);

    char *memories[] = {plain, managed, pinned, own, pooled, pitched, symbol, constant};
    for (char *each : memories) {
        fill(each);
        there(each + 16);
    }
    expect((unsigned long long)plain + 16, 0, 1); /* global */
    gone(freed);
    CHECK(cudaFree(freed));
    gone(unpinned);
    CHECK(cudaFreeHost(unpinned));
    gone(unpooled);
    CHECK(cudaFreeAsync(unpooled, 0));
    gone(unregistered);
    CHECK(cudaHostUnregister(unregistered));
    CHECK(cudaStreamSynchronize(0));
    there((char *)window + piece - 8);
    gone((char *)window + piece - 4); /* into the piece without access */
    gone((char *)window + piece);
    gone((char *)window + 2 * piece);
    gone((char *)window + 3 * piece);
    gone(plain + 17); /* over its end */
    gone(plain - 1);
    gone(plain + 24);
    gone(own + 4096 - 7);
    gone(nullptr);
    gone((char *)8);
    gone((char *)-8);
    gone((char *)-1);
    gone((char *)(1ull << 62));
    gone((char *)&properties); /* the host's stack */
    for (unsigned int space = 3; space < 9; space++)
        expect((unsigned long long)plain + 16, -14, space);

    CHECK(cudaMemcpy(on_device, asks, count * sizeof(Ask), cudaMemcpyDefault));
    for (int round = 0; round < 2; round++) {
        ask<<<1, MOST>>>(on_device, count, sum);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaMemcpy(&answer, sum, 8, cudaMemcpyDefault));
    printf("%d requests, sum %llx\n", count, answer);

    // What the requests lie in goes too: then not even they can be read.
    CHECK(cudaFree(plain));
    CHECK(cudaFree(on_device));
    Ask *again;
    CHECK(cudaHostAlloc((void **)&again, sizeof(asks), cudaHostAllocMapped));
    memset(again, 0, sizeof(asks));
    ask<<<1, MOST>>>(again, 0, sum);
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}

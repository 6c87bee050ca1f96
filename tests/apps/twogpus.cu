// Two GPUs at once, from two threads: kernels, copies between them, access of one's kernels to the other's memory, and a
// context that ends before the program does and comes again. Prints what it computed; with one GPU it says so. With a second
// argument it waits between two rounds of kernels instead, for its input to end: `wait`, or `ends`, with which all that is on the first
// device ends before, when a line has come.
#include "check.h"
#include <cstring>
#include <thread>

__global__ void fill(unsigned *out, unsigned base)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&out[i], base + i);
}

__global__ void fetch(unsigned *to, const unsigned *from)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    to[i] = from[i] + 1;
}

// What tools of libbpf are written for.
__global__ void vectorAdd(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}

static const int ELEMENTS = 1000;
static const unsigned THREADS = 64;
static const unsigned BLOCKS = 6;
static const unsigned COUNT = THREADS * BLOCKS;

static unsigned *memory(int device)
{
    unsigned *at = nullptr;
    CHECK(cudaSetDevice(device));
    CHECK(cudaMalloc(&at, COUNT * sizeof(unsigned)));
    CHECK(cudaMemset(at, 0, COUNT * sizeof(unsigned)));
    return at;
}

static void launches(int device, unsigned *out, unsigned number)
{
    CHECK(cudaSetDevice(device));
    // The second device's grids are smaller.
    unsigned blocks = device == 0 ? BLOCKS : BLOCKS / 2;
    float *sums = nullptr;
    CHECK(cudaMalloc(&sums, ELEMENTS * sizeof(float)));
    CHECK(cudaMemset(sums, 0, ELEMENTS * sizeof(float)));
    for (unsigned n = 0; n < number; n++) {
        fill<<<blocks, THREADS>>>(out, n);
        CHECK(cudaGetLastError());
        vectorAdd<<<(ELEMENTS + 255) / 256, 256>>>(sums, sums, sums, ELEMENTS);
        CHECK(cudaGetLastError());
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(sums));
}

static unsigned long long sum(const unsigned *at)
{
    static unsigned host[COUNT];
    CHECK(cudaMemcpy(host, at, sizeof host, cudaMemcpyDefault));
    unsigned long long total = 0;
    for (unsigned i = 0; i < COUNT; i++)
        total += host[i] * (i + 1ull);
    return total;
}

// Calls that are easily counted.
static void ticks(unsigned number)
{
    for (unsigned n = 0; n < number; n++) {
        char id[32];
        DRIVER(cuDeviceGetPCIBusId, id, sizeof id, 1);
    }
}

static void until(int last)
{
    int byte;
    fflush(stdout);
    while ((byte = getchar()) != last && byte != EOF)
        ;
}

int main(int count, char **arguments)
{
    unsigned number = count > 1 ? atoi(arguments[1]) : 3;
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices));
    if (devices < 2) {
        printf("one GPU\n");
        return 0;
    }
    unsigned *first = memory(0), *second = memory(1);
    // The runtime loads kernels with the first that it needs: on the first device, so that this is the first for who counts.
    cudaFuncAttributes attributes;
    CHECK(cudaSetDevice(0));
    CHECK(cudaFuncGetAttributes(&attributes, fill));
    std::thread one(launches, 0, first, number), two(launches, 1, second, 2 * number);
    one.join();
    two.join();
    printf("%llu %llu\n", sum(first), sum(second));
    if (count > 2 && !strcmp(arguments[2], "ends")) {
        until('\n');
        CHECK(cudaSetDevice(0));
        CHECK(cudaDeviceReset());
        ticks(5);
        printf("%llu\n", sum(second));
        until(EOF);
        launches(1, second, 1);
        ticks(3);
        printf("%llu\n", sum(second));
        return 0;
    }
    if (count > 2) {
        until(EOF);
        launches(0, first, 1);
        launches(1, second, 1);
        printf("%llu %llu\n", sum(first), sum(second));
        return 0;
    }

    CHECK(cudaMemcpyPeer(second, 1, first, 0, COUNT * sizeof(unsigned)));
    printf("%llu\n", sum(second));
    CHECK(cudaSetDevice(1));
    int can = 0;
    CHECK(cudaDeviceCanAccessPeer(&can, 1, 0));
    if (can) {
        // Nobody else has enabled it.
        CHECK(cudaDeviceEnablePeerAccess(0, 0));
        fetch<<<BLOCKS, THREADS>>>(second, first);
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaDeviceDisablePeerAccess(0));
        printf("%llu\n", sum(second));
    }

    // What was on the second one ends, and what comes after it is new.
    CHECK(cudaDeviceReset());
    launches(0, first, 1);
    unsigned *again = memory(1);
    launches(1, again, 2);
    printf("%llu %llu\n", sum(first), sum(again));
    return 0;
}

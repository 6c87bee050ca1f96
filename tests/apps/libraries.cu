// usage: libraries ROUNDS FILE...: loads and unloads each file ROUNDS times, each on a thread of its own, and launches a kernel and
// allocates memory until all are done. Prints whether the sum is that of the launches.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <thread>
#include <vector>

#include "check.h"

#define THREADS 64

__global__ void together(unsigned long long *sum)
{
    atomicAdd(sum, 1ULL);
}

static std::atomic<int> running;
static std::atomic<int> failed;

static void come_and_go(const char *file, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        void *library = dlopen(file, RTLD_NOW);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            failed++;
            break;
        }
        dlclose(library);
    }
    running--;
}

int main(int argc, char **argv)
{
    unsigned long long *device, sum, launches = 0;
    std::vector<std::thread> threads;

    CHECK(cudaMalloc(&device, sizeof(sum)));
    CHECK(cudaMemset(device, 0, sizeof(sum)));
    running = argc - 2;
    for (int i = 2; i < argc; i++)
        threads.emplace_back(come_and_go, argv[i], atoi(argv[1]));
    while (running) {
        void *other;
        together<<<1, THREADS>>>(device);
        CHECK(cudaGetLastError());
        launches++;
        CHECK(cudaMalloc(&other, 4096));
        CHECK(cudaFree(other));
    }
    for (std::thread &thread : threads)
        thread.join();
    CHECK(cudaMemcpy(&sum, device, sizeof(sum), cudaMemcpyDeviceToHost));
    printf("%s\n", sum == launches * THREADS ? "each launch" : "a wrong sum");
    fprintf(stderr, "launches: %llu\n", launches);
    return failed || sum != launches * THREADS;
}

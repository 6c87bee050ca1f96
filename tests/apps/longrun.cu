// A kernel that goes on for so many milliseconds, or until SIGUSR1 comes. Prints that it has ended.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <thread>

#define CHECK(call)                                                                                       \
    do {                                                                                                  \
        cudaError_t error = (call);                                                                       \
        if (error != cudaSuccess) {                                                                       \
            fprintf(stderr, "longrun: %s: %s\n", #call, cudaGetErrorString(error));                       \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

__global__ void spin(volatile unsigned int *stop)
{
    while (!*stop)
        ;
}

static volatile sig_atomic_t told_to_end;

int main(int count, char **arguments)
{
    int milliseconds = count > 1 ? atoi(arguments[1]) : 1000;
    int blocks = count > 2 ? atoi(arguments[2]) : 2;
    signal(SIGUSR1, [](int) { told_to_end = 1; });
    unsigned int *stop;
    CHECK(cudaSetDevice(0));
    CHECK(cudaHostAlloc((void **)&stop, sizeof(*stop), cudaHostAllocMapped));
    *stop = 0;
    std::atomic<bool> ended{false};
    // A thread of its own: on the soft GPU the launch returns when the kernel has ended.
    std::thread timer([&] {
        auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
        while (!ended && !told_to_end && std::chrono::steady_clock::now() < end)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        *(volatile unsigned int *)stop = 1;
    });
    spin<<<blocks, 32>>>(stop);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    ended = true;
    timer.join();
    printf("ended\n");
    return 0;
}

// Launches a small kernel as fast as it can until its input ends. What it prints then is how often it launched, how often the kernel ran, and how many
// launches that were a second.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "check.h"

__device__ unsigned long long ran;

__global__ void tick()
{
    ran++;
}

int main()
{
    std::atomic<bool> over{false};
    std::thread input([&] {
        while (getchar() != EOF)
            ;
        over = true;
    });
    unsigned long long launches = 0, counted = 0;
    auto begun = std::chrono::steady_clock::now();
    while (!over) {
        for (int n = 0; n < 256; n++)
            tick<<<1, 1>>>();
        launches += 256;
        CHECK(cudaDeviceSynchronize());
        if (launches == 256) {
            puts("launching");
            fflush(stdout);
        }
    }
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    CHECK(cudaMemcpyFromSymbol(&counted, ran, sizeof counted));
    printf("%llu %llu %.0f\n", launches, counted, launches / took.count());
    input.join();
    return 0;
}

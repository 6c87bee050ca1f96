// A kernel that does not end by itself and works in rounds: a line of standard input with a number is that many rounds, after which the sum
// of what its threads have stored is printed. Ends with its input.
#include <atomic>
#include <chrono>
#include <thread>

#include "check.h"

#define BLOCKS 3
#define THREADS 40
#define ALL (BLOCKS * THREADS)
#define STOP 0xffffffffu

// In each round a thread stores 8 bytes once.
__global__ void persist(volatile unsigned int *command, volatile unsigned int *done, volatile unsigned long long *sums)
{
    unsigned int thread = blockIdx.x * blockDim.x + threadIdx.x;

    for (unsigned int round = 1;; round++) {
        unsigned int now;

        do
            now = *command;
        while (now < round);
        if (now == STOP)
            return;
        sums[thread] = sums[thread] + round * thread;
        __threadfence_system();
        done[thread] = round;
    }
}

int main()
{
    volatile unsigned int *command, *done;
    volatile unsigned long long *sums;
    char line[64];

    CHECK(cudaSetDevice(0));
    CHECK(cudaHostAlloc((void **)&command, sizeof(*command), cudaHostAllocMapped));
    CHECK(cudaHostAlloc((void **)&done, ALL * sizeof(*done), cudaHostAllocMapped));
    CHECK(cudaHostAlloc((void **)&sums, ALL * sizeof(*sums), cudaHostAllocMapped));
    *command = 0;
    for (int i = 0; i < ALL; i++)
        done[i] = 0, sums[i] = 0;
    // A thread of its own: on the soft GPU the launch returns when the kernel has ended.
    std::thread launcher([&] {
        persist<<<BLOCKS, THREADS>>>(command, done, sums);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
    });
    while (fgets(line, sizeof(line), stdin)) {
        unsigned long long sum = 0;

        for (int n = atoi(line); n > 0; n--) {
            unsigned int round = *command + 1;

            *command = round;
            for (int i = 0; i < ALL; i++)
                while (done[i] != round)
                    std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
        std::atomic_thread_fence(std::memory_order_seq_cst);
        for (int i = 0; i < ALL; i++)
            sum += sums[i];
        printf("%llu\n", sum);
        fflush(stdout);
    }
    *command = STOP;
    launcher.join();
    printf("ended\n");
    return 0;
}

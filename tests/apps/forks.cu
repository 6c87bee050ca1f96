// Processes of every kind beside one that uses CUDA. Each launches its own kernels, and prints what they did.
//
//   forks exec N      launches, and starts itself N times as a program of its own, which launches too
//   forks loaders N   launches, and forks N children that only compute on the CPU, as data loaders do, and end in two ways
//   forks workers N   loads the driver, does nothing with it, and forks N children that start CUDA themselves
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

__global__ void tick(unsigned long long *sum)
{
    atomicAdd(sum, threadIdx.x + 1ULL);
}

static void launch(const char *who, int number, int times)
{
    static unsigned long long *device;
    unsigned long long sum;

    if (!device) {
        CHECK(cudaMalloc((void **)&device, sizeof(sum)));
        CHECK(cudaMemset(device, 0, sizeof(sum)));
    }
    for (int i = 0; i < times; i++) {
        tick<<<2, 32>>>(device);
        CHECK(cudaGetLastError());
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&sum, device, sizeof(sum), cudaMemcpyDeviceToHost));
    printf("%s %d: %llu\n", who, number, sum);
    fflush(stdout);
}

// The output of children in a fixed order: each waits for the one before.
static bool joined(pid_t child)
{
    int status;

    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv)
{
    int count = argc > 2 ? atoi(argv[2]) : 0;

    if (argc < 3)
        return 2;
    if (!strcmp(argv[1], "child")) {
        launch("child", count, count + 1);
        return 0;
    }
    if (!strcmp(argv[1], "exec")) {
        launch("parent", 0, 3);
        for (int i = 0; i < count; i++) {
            pid_t child = fork();
            if (child == 0) {
                char number[16];
                snprintf(number, sizeof(number), "%d", i);
                execl("/proc/self/exe", argv[0], "child", number, (char *)nullptr);
                _exit(127);
            }
            if (!joined(child))
                return 1;
        }
        launch("parent", 0, 3);
        return 0;
    }
    if (!strcmp(argv[1], "loaders")) {
        pid_t children[16];
        int go[2];
        char byte;

        count = count > 16 ? 16 : count;
        if (pipe(go))
            return 1;
        launch("parent", 0, 3);
        for (int i = 0; i < count; i++) {
            children[i] = fork();
            if (children[i] == 0) {
                // It lives on until the parent has launched more.
                close(go[1]);
                if (read(go[0], &byte, 1) != 0)
                    _exit(1);
                volatile unsigned long long sum = 0;
                for (unsigned int n = 0; n < 1000000; n++)
                    sum = sum + n;
                if (i % 2)
                    _exit(sum != 499999500000ULL);
                exit(sum != 499999500000ULL);
            }
        }
        launch("parent", 0, 2);
        close(go[1]);
        for (int i = 0; i < count; i++)
            if (!joined(children[i]))
                return 1;
        launch("parent", 0, 2);
        return 0;
    }
    if (!strcmp(argv[1], "workers")) {
        if (!dlopen("libcuda.so.1", RTLD_NOW))
            return 1;
        for (int i = 0; i < count; i++) {
            pid_t child = fork();
            if (child == 0) {
                launch("worker", i, i + 1);
                exit(0);
            }
            if (!joined(child))
                return 1;
        }
        launch("parent", 0, 1);
        return 0;
    }
    return 2;
}

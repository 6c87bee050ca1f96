// Launches a kernel again and again, with a pause behind each launch or none. Prints the sum of what the kernels did.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <thread>

#define CHECK(call)                                                                                       \
    do {                                                                                                  \
        cudaError_t error = (call);                                                                       \
        if (error != cudaSuccess) {                                                                       \
            fprintf(stderr, "rounds: %s: %s\n", #call, cudaGetErrorString(error));                        \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

__global__ void add(unsigned int *sum)
{
    atomicAdd(sum, threadIdx.x);
}

int main(int count, char **arguments)
{
    int rounds = count > 1 ? atoi(arguments[1]) : 100;
    int milliseconds = count > 2 ? atoi(arguments[2]) : 0;
    unsigned int *device, sum;
    cudaStream_t streams[2];

    CHECK(cudaMalloc((void **)&device, sizeof(sum)));
    CHECK(cudaMemset(device, 0, sizeof(sum)));
    CHECK(cudaDeviceSynchronize());
    for (cudaStream_t &stream : streams)
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int round = 0; round < rounds; round++) {
        add<<<4, 64, 0, streams[round % 2]>>>(device);
        CHECK(cudaGetLastError());
        if (milliseconds) {
            CHECK(cudaStreamSynchronize(streams[round % 2]));
            std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
        }
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&sum, device, sizeof(sum), cudaMemcpyDeviceToHost));
    printf("%d rounds: %u\n", rounds, sum);
    return 0;
}

// Sum of integers: warp shuffles, then shared memory, then one atomic per block. Prints the sum.
// usage: reduction [elements] [launches]
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                          \
    do {                                                                                     \
        cudaError_t error = (call);                                                          \
        if (error != cudaSuccess) {                                                          \
            fprintf(stderr, "reduction: %s: %s\n", #call, cudaGetErrorString(error));        \
            return 1;                                                                        \
        }                                                                                    \
    } while (0)

__device__ unsigned long long total;

__global__ void reduceSum(const int *data, int n)
{
    __shared__ int warps[32];
    int sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += data[i];
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x >= 32)
        return;
    sum = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0;
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (threadIdx.x == 0)
        atomicAdd(&total, (unsigned long long)sum);
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 1000000;
    int launches = argc > 2 ? atoi(argv[2]) : 3;
    int blocks = 64, threads = 256;
    std::vector<int> data(n);
    for (int i = 0; i < n; i++)
        data[i] = i % 1001;
    int *device;
    CHECK(cudaMalloc(&device, n * sizeof(int)));
    CHECK(cudaMemcpy(device, data.data(), n * sizeof(int), cudaMemcpyHostToDevice));
    for (int i = 0; i < launches; i++)
        reduceSum<<<blocks, threads>>>(device, n);
    CHECK(cudaGetLastError());
    unsigned long long sum;
    CHECK(cudaMemcpyFromSymbol(&sum, total, sizeof(sum)));
    printf("reduction: %d elements, %d blocks of %d threads, %d launches, sum %llu\n", n, blocks, threads, launches, sum);
    CHECK(cudaFree(device));
    return 0;
}

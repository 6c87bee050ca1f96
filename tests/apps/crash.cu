// Launches a kernel, waits for it, and crashes a moment later.
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

__global__ void work(int *out) { out[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x; }

int main()
{
    int *out;
    if (cudaMalloc(&out, 40 * 128 * sizeof(int)) != cudaSuccess)
        return 1;
    work<<<40, 128>>>(out);
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 1;
    printf("crash: 40 blocks of 128 threads done\n");
    fflush(stdout);
    usleep(1500 * 1000);
    abort();
}

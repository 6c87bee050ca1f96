// A kernel that writes where nothing is: the launch succeeds, everything after it fails.
#include <cstdio>

__global__ void stray(int *at, int limit) {
    if (blockIdx.x * blockDim.x + threadIdx.x == limit) at[1 << 28] = 1;
}

int main() {
    int *at;
    cudaMalloc(&at, 1024);
    stray<<<4, 64>>>(at, 130);
    printf("launch: %s\n", cudaGetErrorName(cudaGetLastError()));
    printf("synchronize: %s\n", cudaGetErrorString(cudaDeviceSynchronize()));
    printf("malloc: %s\n", cudaGetErrorName(cudaMalloc(&at, 4)));
    printf("reset: %s\n", cudaGetErrorName(cudaDeviceReset()));
    printf("malloc: %s\n", cudaGetErrorName(cudaMalloc(&at, 4)));
    return 0;
}

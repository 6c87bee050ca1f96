// Leaves a kernel running for ever and exits: the process must end all the same.
#include <cstdio>

__global__ void for_ever(volatile int *flag) {
    while (*flag == 0) {
    }
}

int main() {
    volatile int *flag;
    cudaMallocHost((void **)&flag, sizeof(int));
    *flag = 0;
    for_ever<<<1, 1>>>(flag);
    printf("launched: %s\n", cudaGetErrorName(cudaGetLastError()));
    return 7;
}

// A kernel that waits for the host and a host that waits for the kernel: both must run at once.
#include <cstdio>

__global__ void wait_for_host(volatile int *flag, int *answer) {
    while (*flag == 0) {
    }
    *answer = *flag + 1;
}

int main() {
    volatile int *flag;
    int *answer;
    cudaMallocHost((void **)&flag, sizeof(int));
    cudaMallocHost((void **)&answer, sizeof(int));
    *flag = 0;
    wait_for_host<<<1, 1>>>(flag, answer);
    printf("running: %s\n", cudaGetErrorName(cudaStreamQuery(0)));
    *flag = 41;
    printf("done: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    printf("answer %d\n", *answer);
    return 0;
}

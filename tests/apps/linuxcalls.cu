// Asks Linux for a process group as often as it is told, before it uses CUDA and after some launches; nothing else here asks for that. Then it
// launches more, with a pause behind each, so that a program in the kernel can see what was counted meanwhile.
#include "check.h"
#include <unistd.h>

__global__ void work(unsigned int *sum)
{
    atomicAdd(sum, 1);
}

int main(int count, char **arguments)
{
    int before = count > 1 ? atoi(arguments[1]) : 10;
    int after = count > 2 ? atoi(arguments[2]) : 10;
    int launches = count > 3 ? atoi(arguments[3]) : 3;
    int more = count > 4 ? atoi(arguments[4]) : 0;
    unsigned int *device, sum;
    int good = 0;

    for (int call = 0; call < before; call++)
        good += getpgid(0) > 0;
    CHECK(cudaMalloc((void **)&device, sizeof(sum)));
    CHECK(cudaMemset(device, 0, sizeof(sum)));
    for (int launch = 0; launch < launches; launch++)
        work<<<2, 32>>>(device);
    CHECK(cudaDeviceSynchronize());
    for (int call = 0; call < after; call++)
        good += getpgid(0) > 0;
    for (int launch = 0; launch < more; launch++) {
        usleep(5000);
        work<<<2, 32>>>(device);
        CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaMemcpy(&sum, device, sizeof(sum), cudaMemcpyDeviceToHost));
    printf("%d calls, %u threads\n", good, sum);
    return 0;
}

// A thread for each of so many keys, and then nothing until a file is there, or for a minute.
#include "check.h"
#include <unistd.h>

__global__ void ours_insert(unsigned first, unsigned *out)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = first + i;
}

int main(int count, char **arguments)
{
    if (count != 3) {
        fprintf(stderr, "usage: million KEYS FILE\n");
        return 2;
    }
    unsigned blocks = atoi(arguments[1]) / 64, *out;
    CHECK(cudaMalloc(&out, blocks * 64 * sizeof(*out)));
    ours_insert<<<blocks, 64>>>(0, out);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 60000 && access(arguments[2], F_OK) != 0; i++)
        usleep(1000);
    unsigned last;
    CHECK(cudaMemcpy(&last, out + blocks * 64 - 1, sizeof(last), cudaMemcpyDeviceToHost));
    return last != blocks * 64 - 1;
}

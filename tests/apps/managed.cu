// A `__managed__` variable: the host writes and reads it as its own, kernels with programs and kernels without change it between.
#include "check.h"

constexpr int N = 64;

__managed__ unsigned words[N];
__managed__ unsigned total = 5;
__constant__ unsigned factor = 3;

__global__ void probedWords(unsigned add)
{
    words[threadIdx.x] += add;
    atomicAdd(&total, 1);
}
__global__ void bareWords(unsigned add)
{
    words[threadIdx.x] += add;
    atomicAdd(&total, 1);
}
// Constant memory: a second entry in the module of the first, which stands in place of the image.
__global__ void probedScaled()
{
    words[threadIdx.x] *= factor;
}

int main()
{
    unsigned wrong = 0, expected_total = 5;
    for (unsigned round = 0; round < 5; round++) {
        for (int i = 0; i < N; i++)
            words[i] = i * 7 + round;
        total += 100;
        probedWords<<<1, N>>>(3);
        bareWords<<<1, N>>>(5);
        probedWords<<<1, N>>>(round);
        probedScaled<<<1, N>>>();
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        expected_total += 100 + 3 * N;
        for (unsigned i = 0; i < N; i++)
            wrong += words[i] != 3 * (i * 7 + 2 * round + 8);
        wrong += total != expected_total;
        printf("round %u: %u, total %u\n", round, words[N - 1], total);
    }
    // Copies take it as an address.
    unsigned copied, more = 7;
    CHECK(cudaMemcpy(&copied, &total, sizeof(copied), cudaMemcpyDefault));
    wrong += copied != expected_total;
    CHECK(cudaMemcpy(&total, &more, sizeof(more), cudaMemcpyDefault));
    probedWords<<<1, N>>>(0);
    CHECK(cudaDeviceSynchronize());
    wrong += total != more + N;
    printf("%u wrong\n", wrong);
    return wrong != 0;
}

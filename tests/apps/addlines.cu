// Sums of two vectors, as many launches as each line of standard input says, so that somebody can attach to it between two of them.
// What there is so far is printed after each line. There is no constant, so code beside the kernel can stand for it.
// usage: addlines [blocks] [threads per block]
#include <cstdio>
#include <cstdlib>
#include <vector>
#include "check.h"

__global__ void vectorAdd(const float *a, const float *b, float *c)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    c[i] = a[i] + b[i];
}

int main(int argc, char **argv)
{
    int blocks = argc > 1 ? atoi(argv[1]) : 1;
    int threads = argc > 2 ? atoi(argv[2]) : 10;
    int n = blocks * threads, launches = 0;
    std::vector<float> a(n), b(n), c(n);
    for (int i = 0; i < n; i++) {
        a[i] = i;
        b[i] = 2 * i;
    }
    float *da, *db, *dc;
    char line[64];
    CHECK(cudaMalloc(&da, n * sizeof(float)));
    CHECK(cudaMalloc(&db, n * sizeof(float)));
    CHECK(cudaMalloc(&dc, n * sizeof(float)));
    CHECK(cudaMemcpy(da, a.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(db, b.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    while (fgets(line, sizeof(line), stdin)) {
        for (int more = atoi(line); more > 0; more--, launches++)
            vectorAdd<<<blocks, threads>>>(da, db, dc);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(c.data(), dc, n * sizeof(float), cudaMemcpyDeviceToHost));
        double sum = 0;
        for (float value : c)
            sum += value;
        printf("%d launches of %d threads, sum %.0f\n", launches, n, sum);
        fflush(stdout);
    }
    return 0;
}

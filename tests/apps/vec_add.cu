// The sum of two vectors, whose length is a constant of the device, by host code that was not optimised: so the runtime's
// wrapper around cudaLaunchKernel is a function of this program, which tools can probe by its name.
// usage: vec_add [launches] [blocks] [threads per block]
#include <cstdio>
#include <cstdlib>
#include <vector>
#include "check.h"

__constant__ int length;

__global__ void vectorAdd(const float *a, const float *b, float *c)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < length)
        c[i] = a[i] + b[i];
}

int main(int argc, char **argv)
{
    int launches = argc > 1 ? atoi(argv[1]) : 3;
    int blocks = argc > 2 ? atoi(argv[2]) : 1;
    int threads = argc > 3 ? atoi(argv[3]) : 10;
    int n = blocks * threads;
    std::vector<float> a(n), b(n), c(n);
    for (int i = 0; i < n; i++) {
        a[i] = i;
        b[i] = 2 * i;
    }
    float *da, *db, *dc;
    CHECK(cudaMemcpyToSymbol(length, &n, sizeof(n)));
    CHECK(cudaMalloc(&da, n * sizeof(float)));
    CHECK(cudaMalloc(&db, n * sizeof(float)));
    CHECK(cudaMalloc(&dc, n * sizeof(float)));
    CHECK(cudaMemcpy(da, a.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(db, b.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    for (int i = 0; i < launches; i++) {
        // As `<<<>>>` became a call in the compilers before CUDA 13.
        void *arguments[] = { &da, &db, &dc };
        CHECK(cudaLaunchKernel((char *)vectorAdd, dim3(blocks), dim3(threads), arguments));
        CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaMemcpy(c.data(), dc, n * sizeof(float), cudaMemcpyDeviceToHost));
    double sum = 0;
    for (float value : c)
        sum += value;
    printf("vec_add: %d launches of %d threads, C[1]=%g, sum %g\n", launches, n, n > 1 ? c[1] : 0.0, sum);
    return 0;
}

// A product of two matrices of CUTLASS, as its basic example has it: a SIMT kernel with a name of some 1,700 characters.
// usage: cutlass [launches] [rows, columns and depth]
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cutlass/gemm/device/gemm.h>
#include "check.h"

using Rows = cutlass::layout::RowMajor;
using Product = cutlass::gemm::device::Gemm<float, Rows, float, Rows, float, Rows>;

int main(int argc, char **argv)
{
    int launches = argc > 1 ? atoi(argv[1]) : 4;
    int n = argc > 2 ? atoi(argv[2]) : 128;
    std::vector<float> a(n * n), b(n * n), c(n * n);
    for (int i = 0; i < n * n; i++) {
        a[i] = i % 7;
        b[i] = i % 5 - 2;
    }
    size_t bytes = n * n * sizeof(float);
    float *da, *db, *dc;
    CHECK(cudaMalloc(&da, bytes));
    CHECK(cudaMalloc(&db, bytes));
    CHECK(cudaMalloc(&dc, bytes));
    CHECK(cudaMemcpy(da, a.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(db, b.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(dc, 0, bytes));
    for (int i = 0; i < launches; i++) {
        // What it adds to is there after the first launch.
        Product::Arguments arguments({ n, n, n }, { da, n }, { db, n }, { dc, n }, { dc, n }, { 1, i ? 1.0f : 0.0f });
        cutlass::Status status = Product()(arguments);
        if (status != cutlass::Status::kSuccess) {
            fprintf(stderr, "%s\n", cutlassGetStatusString(status));
            return 1;
        }
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(c.data(), dc, bytes, cudaMemcpyDeviceToHost));
    // All numbers are small and whole, so every sum is exact.
    long wrong = 0;
    for (int row = 0; row < n; row++) {
        for (int column = 0; column < n; column++) {
            long sum = 0;
            for (int k = 0; k < n; k++)
                sum += (long)a[row * n + k] * (long)b[k * n + column];
            wrong += c[row * n + column] != (float)(sum * launches);
        }
    }
    printf("cutlass: %d launches, %d elements, wrong %ld\n", launches, n * n, wrong);
    return wrong != 0;
}

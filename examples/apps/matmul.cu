// C = A * B with 16x16 tiles in shared memory. Prints a checksum of the bits of C.
// usage: matmul [n] [launches]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                          \
    do {                                                                                     \
        cudaError_t error = (call);                                                          \
        if (error != cudaSuccess) {                                                          \
            fprintf(stderr, "matmul: %s: %s\n", #call, cudaGetErrorString(error));           \
            return 1;                                                                        \
        }                                                                                    \
    } while (0)

constexpr int TILE = 16;

__global__ void matmulTiled(const float *a, const float *b, float *c, int n)
{
    __shared__ float ta[TILE][TILE];
    __shared__ float tb[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y;
    int column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k += TILE) {
        ta[threadIdx.y][threadIdx.x] = row < n && k + threadIdx.x < n ? a[row * n + k + threadIdx.x] : 0;
        tb[threadIdx.y][threadIdx.x] = column < n && k + threadIdx.y < n ? b[(k + threadIdx.y) * n + column] : 0;
        __syncthreads();
        for (int i = 0; i < TILE; i++)
            sum += ta[threadIdx.y][i] * tb[i][threadIdx.x];
        __syncthreads();
    }
    if (row >= n || column >= n)
        return;
    c[row * n + column] = sum;
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 200;
    int launches = argc > 2 ? atoi(argv[2]) : 2;
    std::vector<float> a(n * n), b(n * n), c(n * n);
    for (int i = 0; i < n * n; i++) {
        a[i] = (i % 31) * 0.125f - 1;
        b[i] = (i % 17) * 0.25f - 2;
    }
    float *da, *db, *dc;
    size_t bytes = sizeof(float) * n * n;
    CHECK(cudaMalloc(&da, bytes));
    CHECK(cudaMalloc(&db, bytes));
    CHECK(cudaMalloc(&dc, bytes));
    CHECK(cudaMemcpy(da, a.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(db, b.data(), bytes, cudaMemcpyHostToDevice));
    dim3 block(TILE, TILE), grid((n + TILE - 1) / TILE, (n + TILE - 1) / TILE);
    for (int i = 0; i < launches; i++)
        matmulTiled<<<grid, block>>>(da, db, dc, n);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(c.data(), dc, bytes, cudaMemcpyDeviceToHost));
    unsigned long long sum = 0;
    for (float value : c) {
        unsigned bits;
        memcpy(&bits, &value, 4);
        sum = sum * 31 + bits;
    }
    printf("matmul: %dx%d, %dx%d blocks of %dx%d threads, %d launches, checksum %016llx\n", n, n, grid.x, grid.y, TILE, TILE,
           launches, sum);
    CHECK(cudaFree(da));
    CHECK(cudaFree(db));
    CHECK(cudaFree(dc));
    return 0;
}

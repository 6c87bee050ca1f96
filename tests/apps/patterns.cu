// Kernels whose warps touch global memory and banks of shared memory in ways that are known: each lane 4 bytes, side by side,
// spread, and in columns of a tile. tests/suite/src/touched.rs knows the numbers.
#include "check.h"

constexpr int BLOCKS = 4, THREADS = 256, TOTAL = BLOCKS * THREADS, SIDE = 32, STRIDE = 32;

__device__ int linear() { return blockIdx.x * blockDim.x + threadIdx.x; }

__global__ void sideBySide(const float *in, float *out) { out[linear()] = in[linear()]; }

__global__ void everyOther(const float *in, float *out) { out[linear()] = in[2 * linear()]; }

__global__ void inColumns(const float *in, float *out) { out[linear()] = in[STRIDE * linear()]; }

__global__ void oneTooFar(const float *in, float *out) { out[linear()] = in[linear() + 1]; }

// Lanes of two ways: 24 lanes read side by side, 8 lanes one word.
__global__ void parted(const float *in, float *out)
{
    if (threadIdx.x % 32 < 24)
        out[linear()] = in[linear()];
    else
        out[linear()] = in[0] + 1;
}

// A square of SIDE by SIDE, written by rows and read by columns, which lie WIDTH floats apart.
template <int WIDTH> __device__ void transpose(const float *in, float *out)
{
    __shared__ float tile[SIDE][WIDTH];
    tile[threadIdx.y][threadIdx.x] = in[threadIdx.y * SIDE + threadIdx.x];
    __syncthreads();
    out[threadIdx.y * SIDE + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

__global__ void transposeTile(const float *in, float *out) { transpose<SIDE>(in, out); }

__global__ void transposePadded(const float *in, float *out) { transpose<SIDE + 1>(in, out); }

int main()
{
    static float values[STRIDE * TOTAL], results[TOTAL];
    float *in, *out;
    for (int i = 0; i < STRIDE * TOTAL; i++)
        values[i] = i % 8191;
    CHECK(cudaMalloc(&in, sizeof(values)));
    CHECK(cudaMalloc(&out, sizeof(results)));
    CHECK(cudaMemcpy(in, values, sizeof(values), cudaMemcpyHostToDevice));
    auto checked = [&](const char *name) {
        double sum = 0;
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpy(results, out, sizeof(results), cudaMemcpyDeviceToHost));
        for (int i = 0; i < TOTAL; i++)
            sum += results[i] * (i % 13);
        printf("patterns: %s %.0f\n", name, sum);
    };
    sideBySide<<<BLOCKS, THREADS>>>(in, out);
    checked("side by side");
    everyOther<<<BLOCKS, THREADS>>>(in, out);
    checked("every other");
    inColumns<<<BLOCKS, THREADS>>>(in, out);
    checked("in columns");
    oneTooFar<<<BLOCKS, THREADS>>>(in, out);
    checked("one too far");
    parted<<<BLOCKS, THREADS>>>(in, out);
    checked("parted");
    transposeTile<<<1, dim3(SIDE, SIDE)>>>(in, out);
    checked("transposed");
    transposePadded<<<1, dim3(SIDE, SIDE)>>>(in, out);
    checked("transposed, padded");
    return 0;
}

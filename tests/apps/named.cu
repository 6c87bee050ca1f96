// Kernels whose parameters have names in the PTX, because this is compiled with `-G`. Both have an `n` and a `bias`, at other
// positions.
#include <cstdio>
#include <cuda_runtime.h>

#define CHECK(call)                                                                          \
    do {                                                                                     \
        cudaError_t error = (call);                                                          \
        if (error != cudaSuccess) {                                                          \
            fprintf(stderr, "named: %s: %s\n", #call, cudaGetErrorString(error));            \
            return 1;                                                                        \
        }                                                                                    \
    } while (0)

constexpr int BLOCKS = 3, THREADS = 32, TOTAL = BLOCKS * THREADS;

__global__ void scaled(long long *out, unsigned n, int factor, long long bias)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = (long long)i * factor + bias;
}

__global__ void shifted(long long bias, long long *out, short n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] += bias;
}

int main()
{
    long long *out, sum = 0, back[TOTAL];
    CHECK(cudaMalloc(&out, sizeof(back)));
    CHECK(cudaMemset(out, 0, sizeof(back)));
    scaled<<<BLOCKS, THREADS>>>(out, 70, 3, 1ll << 40);
    shifted<<<BLOCKS, THREADS>>>(-5, out, 40);
    CHECK(cudaMemcpy(back, out, sizeof(back), cudaMemcpyDeviceToHost));
    for (long long each : back)
        sum += each;
    printf("%lld\n", sum);
    return 0;
}

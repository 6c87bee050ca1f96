// Shared memory, barriers, atomics, shuffles, constants, managed variables.
#include <cstdint>
__constant__ float weights[16] = {1.0f, 2.0f, 3.0f};
__constant__ char text[] = "braces } { and // in data";
__device__ unsigned long long total;
__device__ __managed__ int managed_counter = 3;
__device__ int plain_counter;
__device__ int *pointer_to_counter = &plain_counter;
extern __shared__ __align__(16) unsigned char dynamic[];

extern "C" __global__ void __launch_bounds__(256, 2) reduce(const float *__restrict__ in, float *out, int n) {
    __shared__ float tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? in[i] * weights[i & 15] : 0.0f;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 32; s >>= 1) {
        if (threadIdx.x < s) tile[threadIdx.x] += tile[threadIdx.x + s];
        __syncthreads();
    }
    float v = tile[threadIdx.x & 31];
    for (int d = 16; d; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
    unsigned ballot = __ballot_sync(0xffffffffu, v > 0);
    if (threadIdx.x == 0) {
        out[blockIdx.x] = v + __popc(ballot);
        atomicAdd(&total, (unsigned long long)blockIdx.x);
        atomicCAS(&managed_counter, 1, 2);
        atomicAdd(pointer_to_counter, text[i & 7]);
    }
    ((uint4 *)dynamic)[threadIdx.x] = make_uint4(1, 2, 3, 4);
}

struct Big { int a[9]; double d; };
__global__ void by_value(Big big, Big *out) { out[threadIdx.x] = big; out->a[threadIdx.x % 9] = big.a[threadIdx.x % 9]; }

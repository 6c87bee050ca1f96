// Kernels at the limit of registers (more than 200 each, held across the middle) with more than 48 KiB of dynamic shared memory,
// whose lanes exchange numbers without any synchronisation but that they are together: by volatile shared memory, and by shuffles.
#include <cmath>
#include <cuda_fp16.h>

#include "corpus.h"

constexpr int THREADS = 256, BYTES = 64 << 10, QUADS = BYTES / 16, HELD = 51, APART = 75;

// What a thread holds: 51 pieces of 16 bytes.
template <typename T> struct alignas(16) Piece {
    T of[16 / sizeof(T)];
};

template <typename T> struct Held {
    Piece<T> pieces[HELD];
};

// All threads fill shared memory; then each takes its pieces. Some of what they lie in is overwritten and read again, so that
// they must stay in registers. The result is what another warp wrote.
template <typename T> __device__ __forceinline__ T take(const Piece<T> *in, Piece<T> *shared, Held<T> &held)
{
#pragma unroll 1
    for (int i = threadIdx.x; i < QUADS; i += THREADS)
        shared[i] = in[i];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < HELD; k++)
        held.pieces[k] = shared[threadIdx.x + k * APART];
    __syncthreads();
    shared[threadIdx.x] = in[threadIdx.x ^ 1];
    __syncthreads();
    return shared[threadIdx.x ^ 32].of[0];
}

__host__ __device__ inline float fused(float a, float b, float c) { return fmaf(a, b, c); }
__host__ __device__ inline double fused(double a, double b, double c) { return fma(a, b, c); }
__host__ __device__ inline unsigned fused(unsigned a, unsigned b, unsigned c) { return a * b + c; }
__device__ inline __half2 fused(__half2 a, __half2 b, __half2 c) { return __hfma2(a, b, c); }

template <typename T> __device__ __forceinline__ T fold(const Held<T> &held, T factor)
{
    T sum = factor;
#pragma unroll
    for (int k = 0; k < HELD; k++)
#pragma unroll
        for (int j = 0; j < (int)(16 / sizeof(T)); j++)
            sum = fused(held.pieces[k].of[j], factor, sum);
    return sum;
}

// A butterfly over the lanes of a warp, as it was written before there was `__syncwarp`: each stores, and reads what its
// partner has stored.
template <typename T> __device__ __forceinline__ T butterfly(volatile T *shared, T value)
{
    int at = threadIdx.x;
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        shared[at] = value;
        value = (at & distance) ? shared[at ^ distance] - value : shared[at ^ distance] + value;
    }
    return value;
}

template <typename T> __device__ __forceinline__ T shuffled(T value)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        T other = __shfl_xor_sync(0xffffffffu, value, distance);
        value = (threadIdx.x & distance) ? other - value : other + value;
    }
    return value;
}

extern __shared__ uint4 memory[];

template <typename T> __device__ __forceinline__ void byShared(const Piece<T> *in, T *out)
{
    Held<T> held;
    T first = take(in, (Piece<T> *)memory, held);
    T factor = butterfly((volatile T *)memory + QUADS / 2, first);
    out[threadIdx.x] = fold(held, factor);
}

template <typename T> __device__ __forceinline__ void byShuffle(const Piece<T> *in, T *out)
{
    Held<T> held;
    T first = take(in, (Piece<T> *)memory, held);
    T factor = shuffled(first);
    out[threadIdx.x] = fold(held, factor);
}

#define LIMIT(name, type, how)                                                                                \
    __global__ void __launch_bounds__(THREADS, 1) name(const Piece<type> *in, type *out) { how<type>(in, out); }

LIMIT(limitFloatShared, float, byShared)
LIMIT(limitFloatShuffle, float, byShuffle)
LIMIT(limitDoubleShared, double, byShared)
LIMIT(limitDoubleShuffle, double, byShuffle)
LIMIT(limitIntShared, unsigned, byShared)
LIMIT(limitIntShuffle, unsigned, byShuffle)

// A reduction of the last warp as in the first samples of CUDA, and pairs of halves.
__global__ void __launch_bounds__(THREADS, 1) limitHalfShared(const Piece<__half2> *in, __half2 *out)
{
    Held<__half2> held;
    __half2 first = take(in, (Piece<__half2> *)memory, held);
    volatile unsigned *shared = (volatile unsigned *)memory + QUADS / 2;
    int t = threadIdx.x;
    shared[t] = (unsigned)__half_as_ushort(__low2half(first));
    __syncthreads();
    if (t < 32) {
        shared[t] ^= shared[t + 128];
        shared[t] += shared[t + 64];
        shared[t] += shared[t + 32];
        shared[t] += shared[t + 16];
        shared[t] += shared[t + 8];
        shared[t] += shared[t + 4];
        shared[t] += shared[t + 2];
        shared[t] += shared[t + 1];
    }
    __syncthreads();
    __half2 factor = __half2half2(__uint2half_rn(shared[t & 31] & 3));
    out[t] = fold(held, factor);
}

// The same on the host.
template <typename T> static T wanted(const std::vector<Piece<T>> &in, uint32_t thread)
{
    uint32_t first = thread & ~31u;
    T lanes[32];
    for (uint32_t lane = 0; lane < 32; lane++)
        lanes[lane] = in[(first + lane) ^ 33].of[0];
    for (uint32_t distance = 16; distance > 0; distance /= 2) {
        T next[32];
        for (uint32_t lane = 0; lane < 32; lane++) {
            T own = lanes[lane], other = lanes[lane ^ distance];
            next[lane] = (lane & distance) ? other - own : other + own;
        }
        memcpy(lanes, next, sizeof(lanes));
    }
    T factor = lanes[thread & 31], sum = factor;
    for (int k = 0; k < HELD; k++)
        for (T value : in[thread + k * APART].of)
            sum = fused(value, factor, sum);
    return sum;
}

template <typename T> static T element(uint32_t i) { return (T)small(i); }
template <> __half2 element<__half2>(uint32_t i) { return __floats2half2_rn((float)small(i), (float)small(i + 7)); }

template <typename T> static std::vector<Piece<T>> pieces()
{
    std::vector<Piece<T>> all(QUADS);
    for (uint32_t i = 0; i < QUADS; i++)
        for (uint32_t j = 0; j < 16 / sizeof(T); j++)
            all[i].of[j] = element<T>(i * (16 / sizeof(T)) + j);
    return all;
}

template <typename T> struct Run {
    std::vector<Piece<T>> values = pieces<T>();
    Buffer<Piece<T>> in;
    Buffer<T> out;

    Run(void (*kernel)(const Piece<T> *, T *)) : in(QUADS, [this](uint32_t i) { return values[i]; }), out(THREADS)
    {
        CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES));
        kernel<<<1, THREADS, BYTES>>>(in.device, out.device);
    }
};

template <typename T> static void checked(const char *name, void (*kernel)(const Piece<T> *, T *))
{
    Run<T> run(kernel);
    report(name, run.out, [&](uint32_t i) { return wanted(run.values, i); });
}

static const corpus::Case cases[] = {
    {"limitFloatShared", [] { checked("limitFloatShared", limitFloatShared); }},
    {"limitFloatShuffle", [] { checked("limitFloatShuffle", limitFloatShuffle); }},
    {"limitDoubleShared", [] { checked("limitDoubleShared", limitDoubleShared); }},
    {"limitDoubleShuffle", [] { checked("limitDoubleShuffle", limitDoubleShuffle); }},
    {"limitIntShared", [] { checked("limitIntShared", limitIntShared); }},
    {"limitIntShuffle", [] { checked("limitIntShuffle", limitIntShuffle); }},
    {"limitHalfShared",
     [] {
         Run<__half2> run(limitHalfShared);
         report("limitHalfShared", run.out);
     }},
};

int main(int argc, char **argv) { return corpus::run(argc, argv, cases); }

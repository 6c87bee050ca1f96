// Tensor cores four warps at a time: asynchronous, operands in shared memory by descriptor or in registers.
#include <cuda_fp16.h>

#include "corpus.h"

// PTX ISA "Matrix Descriptor Format", no swizzle: core matrices of 8 rows of 16 bytes, `across` bytes apart along K and
// `along` bytes apart along M or N.
__device__ uint64_t descriptor(const void *at, uint64_t across, uint64_t along)
{
    uint64_t address = __cvta_generic_to_shared(at);
    return (address >> 4 & 0x3fff) | (across >> 4) << 16 | (along >> 4) << 32;
}

// Byte of an element of `size` bytes in such a layout, rows of `bytes` bytes in all.
__device__ int core(int row, int column, int size, int bytes)
{
    return row / 8 * (bytes * 8) + column * size / 16 * 128 + row % 8 * 16 + column * size % 16;
}

// The registers are operands, so that what they hold is there before the fence.
__device__ void before(float &c0, float &c1, float &c2, float &c3)
{
    asm volatile("fence.proxy.async;\n\twgmma.fence.sync.aligned;" : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)::"memory");
}
__device__ void before(int &c0, int &c1, int &c2, int &c3)
{
    asm volatile("fence.proxy.async;\n\twgmma.fence.sync.aligned;" : "+r"(c0), "+r"(c1), "+r"(c2), "+r"(c3)::"memory");
}
__device__ void after()
{
    asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// D is 64 x 8: the part of a thread is as of mma, one warp below another.
template <typename T> __device__ void store64x8(T *d, T c0, T c1, T c2, T c3)
{
    int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    d[row * 8 + column] = c0;
    d[row * 8 + column + 1] = c1;
    d[(row + 8) * 8 + column] = c2;
    d[(row + 8) * 8 + column + 1] = c3;
}

__global__ void wgmmaShared(const __half *a, const __half *b, float *d)
{
    __shared__ __align__(128) char as[64 * 32], bs[8 * 32];
    for (int i = threadIdx.x; i < 64 * 16; i += 128)
        *(__half *)(as + core(i / 16, i % 16, 2, 32)) = a[i];
    for (int i = threadIdx.x; i < 8 * 16; i += 128)
        *(__half *)(bs + core(i / 16, i % 16, 2, 32)) = b[i];
    __syncthreads();
    float c0 = 1, c1 = 1, c2 = 1, c3 = 1;
    before(c0, c1, c2, c3);
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
                 : "l"(descriptor(as, 128, 256)), "l"(descriptor(bs, 128, 256))
                 : "memory");
    after();
    store64x8(d, c0, c1, c2, c3);
}

__global__ void wgmmaRegisters(const __half *a, const __half *b, float *d)
{
    __shared__ __align__(128) char bs[8 * 32];
    for (int i = threadIdx.x; i < 8 * 16; i += 128)
        *(__half *)(bs + core(i / 16, i % 16, 2, 32)) = b[i];
    __syncthreads();
    const uint32_t *row = (const uint32_t *)(a + (threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4) * 16);
    uint32_t a0 = row[threadIdx.x % 4], a1 = row[64 + threadIdx.x % 4];
    uint32_t a2 = row[4 + threadIdx.x % 4], a3 = row[68 + threadIdx.x % 4];
    float c0 = 0, c1 = 0, c2 = 0, c3 = 0;
    before(c0, c1, c2, c3);
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, {%5, %6, %7, %8}, %4, 1, -1, 1, 0;"
                 : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
                 : "l"(descriptor(bs, 128, 256)), "r"(a0), "r"(a1), "r"(a2), "r"(a3)
                 : "memory");
    after();
    store64x8(d, c0, c1, c2, c3);
}

__global__ void wgmmaInteger(const signed char *a, const signed char *b, int *d)
{
    __shared__ __align__(128) char as[64 * 32], bs[8 * 32];
    for (int i = threadIdx.x; i < 64 * 32; i += 128)
        as[core(i / 32, i % 32, 1, 32)] = a[i];
    for (int i = threadIdx.x; i < 8 * 32; i += 128)
        bs[core(i / 32, i % 32, 1, 32)] = b[i];
    __syncthreads();
    int c0 = 5, c1 = 5, c2 = 5, c3 = 5;
    before(c0, c1, c2, c3);
    // Without what is in D before.
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %6, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%0, %1, %2, %3}, %4, %5, p; }"
                 : "+r"(c0), "+r"(c1), "+r"(c2), "+r"(c3)
                 : "l"(descriptor(as, 128, 256)), "l"(descriptor(bs, 128, 256)), "r"(0)
                 : "memory");
    after();
    store64x8(d, c0, c1, c2, c3);
}

// Four steps along K in one group.
__global__ void wgmmaChain(const __half *a, const __half *b, float *d)
{
    __shared__ __align__(128) char as[64 * 128], bs[8 * 128];
    for (int i = threadIdx.x; i < 64 * 64; i += 128)
        *(__half *)(as + core(i / 64, i % 64, 2, 128)) = a[i];
    for (int i = threadIdx.x; i < 8 * 64; i += 128)
        *(__half *)(bs + core(i / 64, i % 64, 2, 128)) = b[i];
    __syncthreads();
    float c0 = 0, c1 = 0, c2 = 0, c3 = 0;
    before(c0, c1, c2, c3);
#pragma unroll
    for (int k = 0; k < 4; k++)
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                     : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
                     : "l"(descriptor(as + k * 256, 128, 1024)), "l"(descriptor(bs + k * 256, 128, 1024))
                     : "memory");
    after();
    store64x8(d, c0, c1, c2, c3);
}

static const auto HALF = [](uint32_t i) { return __float2half((float)small(i)); };

static float dot(const std::vector<__half> &a, const std::vector<__half> &b, uint32_t i, int k)
{
    float sum = 0;
    for (int j = 0; j < k; j++)
        sum += (float)a[i / 8 * k + j] * (float)b[i % 8 * k + j];
    return sum;
}

static const corpus::Case cases[] = {
    {"wgmmaShared",
     [] {
         Buffer<__half> a(64 * 16, HALF), b(8 * 16, HALF);
         Buffer<float> d(512);
         wgmmaShared<<<1, 128>>>(a.device, b.device, d.device);
         report("wgmmaShared", d, [&](uint32_t i) { return 1 + dot(a.host, b.host, i, 16); });
     }},
    {"wgmmaRegisters",
     [] {
         Buffer<__half> a(64 * 16, HALF), b(8 * 16, HALF);
         Buffer<float> d(512);
         wgmmaRegisters<<<1, 128>>>(a.device, b.device, d.device);
         report("wgmmaRegisters", d, [&](uint32_t i) { return 0.0f - dot(a.host, b.host, i, 16); });
     }},
    {"wgmmaInteger",
     [] {
         auto value = [](uint32_t i) { return (signed char)(number(i) % 256); };
         Buffer<signed char> a(64 * 32, value), b(8 * 32, value);
         Buffer<int> d(512);
         wgmmaInteger<<<1, 128>>>(a.device, b.device, d.device);
         report("wgmmaInteger", d, [&](uint32_t i) {
             int sum = 0;
             for (int k = 0; k < 32; k++)
                 sum += a.host[i / 8 * 32 + k] * b.host[i % 8 * 32 + k];
             return sum;
         });
     }},
    {"wgmmaChain",
     [] {
         Buffer<__half> a(64 * 64, HALF), b(8 * 64, HALF);
         Buffer<float> d(512);
         wgmmaChain<<<1, 128>>>(a.device, b.device, d.device);
         report("wgmmaChain", d, [&](uint32_t i) { return dot(a.host, b.host, i, 64); });
     }},
};

int main(int argc, char **argv) { return corpus::run(argc, argv, cases); }

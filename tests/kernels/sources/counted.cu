// Kernels whose memory accesses follow from their geometry: the runner has a table of them, by kind and space. Loops are
// not unrolled, so that an access of the source is an access of the PTX.
#include "barriers.h"
#include "corpus.h"

__global__ void countCopy(const int *in, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[i] + 1;
}

__global__ void countVector(const int4 *in, int4 *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int4 four = in[i];
    out[i] = int4{four.w, four.z, four.y, four.x};
}

__global__ void countLoop(const int *in, int *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
#pragma unroll 1
    for (int k = 0; k <= threadIdx.x; k++)
        sum += in[k];
    out[i] = sum;
}

__global__ void countShared(int *out)
{
    __shared__ int values[64];
    values[threadIdx.x] = threadIdx.x * 3;
    __syncthreads();
    out[blockIdx.x * 64 + threadIdx.x] = values[63 - threadIdx.x] + values[threadIdx.x ^ 1];
}

__global__ void countAtomic(int *out)
{
    asm volatile("red.global.add.s32 [%0], 1;" ::"l"(out) : "memory");
    int before;
    asm volatile("atom.global.max.s32 %0, [%1], %2;" : "=r"(before) : "l"(out + 1), "r"(threadIdx.x) : "memory");
    if (before > 1000000)
        out[2] = 1;
}

__global__ void countDiverged(int *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x % 3 == 0)
        out[i] = 1;
    else if (threadIdx.x % 3 == 1) {
        out[i] = 2;
        if (threadIdx.x < 16)
            out[i + 256] = 3;
    }
}

__constant__ int weights[32];

__global__ void countConstant(int *out)
{
    out[blockIdx.x * blockDim.x + threadIdx.x] = weights[threadIdx.x % 32] * 2;
}

__global__ void countLocal(int *out, int rounds)
{
    int mine[16];
#pragma unroll 1
    for (int k = 0; k < 16; k++)
        mine[k * 5 % 16] = k;
    int at = threadIdx.x % 16;
#pragma unroll 1
    for (int k = 0; k < rounds; k++)
        at = mine[at];
    out[blockIdx.x * blockDim.x + threadIdx.x] = at;
}

__device__ __noinline__ void swap(int *a, int *b)
{
    // Or the compiler finds out which space each is of.
    asm volatile("" : "+l"(a), "+l"(b));
    int other = *a;
    *a = *b;
    *b = other;
}

__global__ void countGeneric(int *values)
{
    __shared__ int here[32];
    here[threadIdx.x] = threadIdx.x;
    swap(&here[threadIdx.x], &values[blockIdx.x * 32 + threadIdx.x]);
    values[(gridDim.x + blockIdx.x) * 32 + threadIdx.x] = here[threadIdx.x];
}

__global__ void countAsync(const int *in, int *out)
{
    __shared__ __align__(16) int buffer[128];
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(buffer + threadIdx.x * 4)),
                 "l"(__cvta_generic_to_global(in + threadIdx.x * 4))
                 : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncwarp();
    out[threadIdx.x] = buffer[threadIdx.x * 4 + 1];
}

__global__ void countPredicated(int *out, int n)
{
    asm volatile("{ .reg .pred p; .reg .b64 at; .reg .b32 x;\n\t"
                 "mul.wide.u32 at, %2, 4; add.s64 at, at, %0;\n\t"
                 "setp.lt.s32 p, %2, %1;\n\t"
                 "mov.b32 x, 5;\n\t"
                 "@p ld.global.b32 x, [at];\n\t"
                 "@!p st.global.b32 [at], x;\n\t"
                 "@p st.global.b32 [at], x; }" ::"l"(__cvta_generic_to_global(out)),
                 "r"(n), "r"(threadIdx.x + blockIdx.x * blockDim.x)
                 : "memory");
}

__global__ void countBulk(const int *in, int *out)
{
    __shared__ __align__(128) int buffer[64];
    __shared__ uint64_t barrier;
    if (threadIdx.x == 0) {
        barrier_init(&barrier, 1);
        barrier_init_visible();
        barrier_expect(&barrier, sizeof(buffer));
        bulk_load(buffer, in, sizeof(buffer), &barrier);
    }
    __syncthreads();
    barrier_wait(&barrier, 0);
    out[blockIdx.x * 64 + threadIdx.x] = buffer[threadIdx.x];
}

static const auto SELF = [](uint32_t i) { return (int)i; };

static const corpus::Case cases[] = {
    {"countCopy",
     [] {
         Buffer<int> in(150, SELF), out(192);
         countCopy<<<3, 64>>>(in.device, out.device, 150);
         report("countCopy", out, [](uint32_t i) { return i < 150 ? (int)i + 1 : 0; });
     }},
    {"countVector",
     [] {
         Buffer<int4> in(96, [](uint32_t i) { return int4{(int)i, 1, 2, -(int)i}; }), out(96);
         countVector<<<3, 32>>>(in.device, out.device);
         report("countVector", out, [](uint32_t i) { return int4{-(int)i, 2, 1, (int)i}; });
     }},
    {"countLoop",
     [] {
         Buffer<int> in(32, SELF), out(64);
         countLoop<<<2, 32>>>(in.device, out.device);
         report("countLoop", out, [](uint32_t i) { return (int)(i % 32 * (i % 32 + 1) / 2); });
     }},
    {"countShared",
     [] {
         Buffer<int> out(128);
         countShared<<<2, 64>>>(out.device);
         report("countShared", out, [](uint32_t i) { return (int)(63 - i % 64 + (i % 64 ^ 1)) * 3; });
     }},
    {"countAtomic",
     [] {
         Buffer<int> out(3);
         countAtomic<<<2, 48>>>(out.device);
         report("countAtomic", out, [](uint32_t i) { return i == 0 ? 96 : i == 1 ? 47 : 0; });
     }},
    {"countDiverged",
     [] {
         Buffer<int> out(512);
         countDiverged<<<4, 64>>>(out.device);
         report("countDiverged", out, [](uint32_t i) {
             uint32_t t = i % 64;
             return i < 256 ? (t % 3 == 0 ? 1 : t % 3 == 1 ? 2 : 0) : t % 3 == 1 && t < 16 ? 3 : 0;
         });
     }},
    {"countConstant",
     [] {
         int numbers[32];
         for (int i = 0; i < 32; i++)
             numbers[i] = small(i);
         CHECK(cudaMemcpyToSymbol(weights, numbers, sizeof(numbers)));
         Buffer<int> out(128);
         countConstant<<<2, 64>>>(out.device);
         report("countConstant", out, [](uint32_t i) { return small(i % 32) * 2; });
     }},
    {"countLocal",
     [] {
         Buffer<int> out(64);
         countLocal<<<2, 32>>>(out.device, 3);
         report("countLocal", out, [](uint32_t i) {
             int mine[16], at = (int)(i % 16);
             for (int k = 0; k < 16; k++)
                 mine[k * 5 % 16] = k;
             return mine[mine[mine[at]]];
         });
     }},
    {"countGeneric",
     [] {
         Buffer<int> values(128, [](uint32_t i) { return (int)i + 500; });
         countGeneric<<<2, 32>>>(values.device);
         report("countGeneric", values, [](uint32_t i) { return i < 64 ? (int)(i % 32) : (int)i - 64 + 500; });
     }},
    {"countAsync",
     [] {
         Buffer<int> in(128, SELF), out(32);
         countAsync<<<1, 32>>>(in.device, out.device);
         report("countAsync", out, [](uint32_t i) { return (int)i * 4 + 1; });
     }},
    {"countPredicated",
     [] {
         Buffer<int> out(96);
         countPredicated<<<2, 48>>>(out.device, 70);
         report("countPredicated", out, [](uint32_t i) { return i < 70 ? 0 : 5; });
     }},
    {"countBulk",
     [] {
         Buffer<int> in(64, SELF), out(192);
         countBulk<<<3, 64>>>(in.device, out.device);
         report("countBulk", out, [](uint32_t i) { return (int)(i % 64); });
     }},
};

int main(int argc, char **argv) { return corpus::run(argc, argv, cases); }

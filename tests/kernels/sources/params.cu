// Many and large parameters: beyond the 4 KB of older GPUs, up to the limit, and used by address.
#include "corpus.h"

template <int N> struct Words {
    int words[N];
};

template <int N> __device__ int weigh(const Words<N> &all, int first, int step)
{
    int sum = 0;
    for (int i = first; i < N; i += step)
        sum += all.words[i] * (i + 1);
    return sum;
}

// 4,352 bytes of parameter before the pointer.
__global__ void parameters4k(Words<1088> all, int *out) { out[threadIdx.x] = weigh(all, threadIdx.x, 32); }

__global__ void parameters16k(Words<4096> all, int *out, Words<16> more, int shift)
{
    out[threadIdx.x] = weigh(all, threadIdx.x, 32) + (more.words[threadIdx.x % 16] << shift);
}

// 32,764 bytes in all, the most there can be.
__global__ void parameters32k(int *out, int shift, Words<8188> all)
{
    out[threadIdx.x] = weigh(all, threadIdx.x, 64) << shift;
}

__global__ void parametersByAddress(const __grid_constant__ Words<1200> all, int *out)
{
    const int *at = all.words + number(threadIdx.x) % 1200;
    out[threadIdx.x] = *at;
}

// A parameter that the kernel writes: a copy of its own, in local memory.
__global__ void parametersWritten(Words<64> all, int *out)
{
    for (int i = 0; i < 64; i++)
        all.words[(i * 7 + threadIdx.x) % 64] += i;
    out[threadIdx.x] = all.words[threadIdx.x];
}

__global__ void parametersMany(char a, short b, int c, long long d, float e, double f, unsigned char g, const int *h, bool i,
                               char3 j, short2 k, int4 l, double2 m, int *out)
{
    int sum = a + b * 2 + c * 3 + (int)d * 4 + (int)e * 5 + (int)f * 6 + g * 7 + h[threadIdx.x] * 8 + i * 9;
    sum += j.x + j.y * 2 + j.z * 3 + k.x * 4 + k.y * 5 + l.x + l.y + l.z + l.w + (int)m.x + (int)m.y;
    out[threadIdx.x] = sum;
}

template <int N> static Words<N> words()
{
    Words<N> all;
    for (int i = 0; i < N; i++)
        all.words[i] = small(i);
    return all;
}

template <int N> static int host_weigh(int first, int step)
{
    int sum = 0;
    for (int i = first; i < N; i += step)
        sum += small(i) * (i + 1);
    return sum;
}

static const corpus::Case cases[] = {
    {"parameters4k",
     [] {
         Buffer<int> out(32);
         parameters4k<<<1, 32>>>(words<1088>(), out.device);
         report("parameters4k", out, [](uint32_t i) { return host_weigh<1088>(i, 32); });
     }},
    {"parameters16k",
     [] {
         Buffer<int> out(32);
         parameters16k<<<1, 32>>>(words<4096>(), out.device, words<16>(), 3);
         report("parameters16k", out, [](uint32_t i) { return host_weigh<4096>(i, 32) + small(i % 16) * 8; });
     }},
    {"parameters32k",
     [] {
         Buffer<int> out(64);
         parameters32k<<<1, 64>>>(out.device, 1, words<8188>());
         report("parameters32k", out, [](uint32_t i) { return host_weigh<8188>(i, 64) * 2; });
     }},
    {"parametersByAddress",
     [] {
         Buffer<int> out(64);
         parametersByAddress<<<1, 64>>>(words<1200>(), out.device);
         report("parametersByAddress", out, [](uint32_t i) { return small(number(i) % 1200); });
     }},
    {"parametersWritten",
     [] {
         Buffer<int> out(32);
         parametersWritten<<<1, 32>>>(words<64>(), out.device);
         report("parametersWritten", out, [](uint32_t t) {
             int value = small(t);
             for (uint32_t i = 0; i < 64; i++)
                 value += (i * 7 + t) % 64 == t ? (int)i : 0;
             return value;
         });
     }},
    {"parametersMany",
     [] {
         Buffer<int> in(32, [](uint32_t i) { return small(i); }), out(32);
         parametersMany<<<1, 32>>>(-3, 300, 70000, -9, 2.5f, -7.25, 200, in.device, true, char3{1, -2, 3}, short2{400, -500},
                                   int4{1, 2, 3, -4}, double2{8.5, -9.5}, out.device);
         report("parametersMany", out, [&](uint32_t i) {
             int sum = -3 + 600 + 210000 - 36 + 10 - 42 + 1400 + in.host[i] * 8 + 9;
             return sum + 1 - 4 + 9 + 1600 - 2500 + 2 + 8 - 9;
         });
     }},
};

int main(int argc, char **argv) { return corpus::run(argc, argv, cases); }

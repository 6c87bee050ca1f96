// Half precision: f16, bf16 and the 8-bit formats; pairs in one register; conversions of every value there is.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "corpus.h"

__global__ void halfFused(const __half2 *x, const __half2 *y, __half2 *out, __half factor)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = __hfma2(__half2half2(factor), x[i], __hmul2(y[i], x[i]));
}

__global__ void bfloatDot(const __nv_bfloat162 *x, const __nv_bfloat162 *y, float *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float2 a = __bfloat1622float2(x[i]), b = __bfloat1622float2(__hadd2(y[i], x[i]));
    float sum = a.x * b.x + a.y * b.y;
    for (int distance = 16; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (threadIdx.x % 32 == 0)
        out[i / 32] = sum;
}

// Each of the 65,536 halves, to float and back, rounded in each way.
__global__ void halfConvert(uint32_t *out)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < 65536; i += gridDim.x * blockDim.x) {
        float value = __half2float(__ushort_as_half((unsigned short)i)) * 1.0009765625f;
        uint32_t near = __half_as_ushort(__float2half_rn(value)), down = __half_as_ushort(__float2half_rd(value));
        uint32_t up = __half_as_ushort(__float2half_ru(value));
        uint32_t whole = (uint32_t)__half2int_rz(__ushort_as_half((unsigned short)i));
        out[i] = near ^ (down << 8) ^ (up << 16) ^ (whole * 3);
    }
}

__global__ void halfCompare(const __half *in, unsigned *out)
{
    int t = threadIdx.x;
    __half a = in[t], b = in[(t + 1) % blockDim.x];
    unsigned bits = __hlt(a, b) | __hge(a, b) << 1 | __heq(a, b) << 2 | __hisnan(a) << 3 | __hisinf(a) << 4;
    bits |= (unsigned)__half_as_ushort(__hmax(a, b)) << 8;
    out[t] = bits ^ (unsigned)__half_as_ushort(__hmin_nan(a, b)) << 16;
}

__global__ void eightBits(const float *in, uint32_t *out)
{
    float x = in[threadIdx.x];
    __nv_fp8_e4m3 a(x);
    __nv_fp8_e5m2 b(x * 16);
    float back = (float)a + (float)b;
    out[threadIdx.x] = a.__x | b.__x << 8 | (__float_as_uint(back) & 0xffff0000u);
}

__global__ void halfAtomics(__half2 *out, __nv_bfloat16 *sum)
{
    atomicAdd(out + threadIdx.x % 4, __floats2half2_rn(1.0f, threadIdx.x % 8));
    atomicAdd(sum, __float2bfloat16(1.0f));
}

static const auto HALF2 = [](uint32_t i) { return __floats2half2_rn(small(i), small(i + 5000) * 0.25f); };

static const corpus::Case cases[] = {
    {"halfFused",
     [] {
         Buffer<__half2> x(128, HALF2), y(128, HALF2), out(128);
         halfFused<<<2, 64>>>(x.device, y.device, out.device, __float2half(1.5f));
         report("halfFused", out, [&](uint32_t i) {
             float2 a = __half22float2(x.host[i]), b = __half22float2(y.host[i]);
             return __floats2half2_rn(1.5f * a.x + b.x * a.x, 1.5f * a.y + b.y * a.y);
         });
     }},
    {"bfloatDot",
     [] {
         auto value = [](uint32_t i) { return __floats2bfloat162_rn(small(i), small(i + 77)); };
         Buffer<__nv_bfloat162> x(128, value), y(128, value);
         Buffer<float> out(4);
         bfloatDot<<<2, 64>>>(x.device, y.device, out.device);
         report("bfloatDot", out, [&](uint32_t i) {
             float sum = 0;
             for (int k = 0; k < 32; k++) {
                 float2 a = __bfloat1622float2(x.host[i * 32 + k]), b = __bfloat1622float2(y.host[i * 32 + k]);
                 sum += a.x * (b.x + a.x) + a.y * (b.y + a.y);
             }
             return sum;
         });
     }},
    {"halfConvert",
     [] {
         Buffer<uint32_t> out(65536);
         halfConvert<<<4, 128>>>(out.device);
         report("halfConvert", out);
     }},
    {"halfCompare",
     [] {
         auto value = [](uint32_t i) { return __ushort_as_half((unsigned short)(i % 5 ? number(i) : 0x7c00 + i % 3)); };
         Buffer<__half> in(128, value);
         Buffer<unsigned> out(128);
         halfCompare<<<1, 128>>>(in.device, out.device);
         report("halfCompare", out);
     }},
    {"eightBits",
     [] {
         Buffer<float> in(128, [](uint32_t i) { return ((int)(number(i) % 2001) - 1000) / 7.0f; });
         Buffer<uint32_t> out(128);
         eightBits<<<1, 128>>>(in.device, out.device);
         report("eightBits", out);
     }},
    {"halfAtomics",
     [] {
         Buffer<__half2> out(4);
         Buffer<__nv_bfloat16> sum(1);
         halfAtomics<<<2, 32>>>(out.device, sum.device);
         std::vector<__nv_bfloat16> total = sum.fetch();
         if ((float)total[0] != 64) {
             fprintf(stderr, "halfAtomics: the sum is wrong\n");
             exit(1);
         }
         report("halfAtomics", out, [](uint32_t i) { return __floats2half2_rn(16, 8 * (i + i + 4)); });
     }},
};

int main(int argc, char **argv) { return corpus::run(argc, argv, cases); }

// Tensor cores one warp at a time: mma by inline PTX in each family of types, ldmatrix, and wmma.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include "corpus.h"

// Rows and columns of a lane's parts, PTX ISA "Matrix Fragments for mma": group of four lanes, and place in it.
#define GROUP (int)(threadIdx.x % 32 / 4)
#define PLACE (int)(threadIdx.x % 4)

template <typename T> __device__ uint32_t word(const T *at) { return *(const uint32_t *)at; }

__device__ void store16x8(float *d, const float (&c)[4])
{
    d[GROUP * 8 + PLACE * 2] = c[0];
    d[GROUP * 8 + PLACE * 2 + 1] = c[1];
    d[(GROUP + 8) * 8 + PLACE * 2] = c[2];
    d[(GROUP + 8) * 8 + PLACE * 2 + 1] = c[3];
}

// A is 16 x 16 by rows, B is 8 columns of 16, D is 16 x 8.
__global__ void mmaHalf(const __half *a, const __half *b, float *d)
{
    float c[4] = {1, 2, 3, 4};
    uint32_t a0 = word(a + GROUP * 16 + PLACE * 2), a1 = word(a + (GROUP + 8) * 16 + PLACE * 2);
    uint32_t a2 = word(a + GROUP * 16 + PLACE * 2 + 8), a3 = word(a + (GROUP + 8) * 16 + PLACE * 2 + 8);
    uint32_t b0 = word(b + GROUP * 16 + PLACE * 2), b1 = word(b + GROUP * 16 + PLACE * 2 + 8);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    store16x8(d, c);
}

__global__ void mmaBfloat(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *d)
{
    float c[4] = {};
    uint32_t a0 = word(a + GROUP * 16 + PLACE * 2), a1 = word(a + (GROUP + 8) * 16 + PLACE * 2);
    uint32_t a2 = word(a + GROUP * 16 + PLACE * 2 + 8), a3 = word(a + (GROUP + 8) * 16 + PLACE * 2 + 8);
    uint32_t b0 = word(b + GROUP * 16 + PLACE * 2), b1 = word(b + GROUP * 16 + PLACE * 2 + 8);
    for (int round = 0; round < 3; round++)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    store16x8(d, c);
}

// A is 16 x 8, B is 8 columns of 8.
__global__ void mmaTensorFloat(const float *a, const float *b, float *d)
{
    float c[4] = {};
    uint32_t a0 = word(a + GROUP * 8 + PLACE), a1 = word(a + (GROUP + 8) * 8 + PLACE);
    uint32_t a2 = word(a + GROUP * 8 + PLACE + 4), a3 = word(a + (GROUP + 8) * 8 + PLACE + 4);
    uint32_t b0 = word(b + GROUP * 8 + PLACE), b1 = word(b + GROUP * 8 + PLACE + 4);
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    store16x8(d, c);
}

// A is 16 x 32, B is 8 columns of 32.
__global__ void mmaInteger(const signed char *a, const signed char *b, int *d)
{
    int c[4] = {};
    uint32_t a0 = word(a + GROUP * 32 + PLACE * 4), a1 = word(a + (GROUP + 8) * 32 + PLACE * 4);
    uint32_t a2 = word(a + GROUP * 32 + PLACE * 4 + 16), a3 = word(a + (GROUP + 8) * 32 + PLACE * 4 + 16);
    uint32_t b0 = word(b + GROUP * 32 + PLACE * 4), b1 = word(b + GROUP * 32 + PLACE * 4 + 16);
    asm("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    d[GROUP * 8 + PLACE * 2] = c[0];
    d[GROUP * 8 + PLACE * 2 + 1] = c[1];
    d[(GROUP + 8) * 8 + PLACE * 2] = c[2];
    d[(GROUP + 8) * 8 + PLACE * 2 + 1] = c[3];
}

// A is 8 x 4, B is 8 columns of 4, D is 8 x 8.
__global__ void mmaDouble(const double *a, const double *b, double *d)
{
    double c0 = 0.5, c1 = -0.5;
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(c0), "+d"(c1)
        : "d"(a[GROUP * 4 + PLACE]), "d"(b[GROUP * 4 + PLACE]));
    d[GROUP * 8 + PLACE * 2] = c0;
    d[GROUP * 8 + PLACE * 2 + 1] = c1;
}

// As mmaHalf, through shared memory.
__global__ void mmaFromShared(const __half *a, const __half *b, float *d)
{
    __shared__ __align__(16) __half as[16 * 16], bs[8 * 16];
    for (int i = threadIdx.x; i < 256; i += 32)
        as[i] = a[i];
    for (int i = threadIdx.x; i < 128; i += 32)
        bs[i] = b[i];
    __syncwarp();
    int lane = threadIdx.x;
    uint32_t a_at = (uint32_t)__cvta_generic_to_shared(as + lane % 16 * 16 + lane / 16 * 8);
    uint32_t b_at = (uint32_t)__cvta_generic_to_shared(bs + lane % 8 * 16 + lane / 8 % 2 * 8);
    uint32_t a0, a1, a2, a3, b0, b1;
    float c[4] = {};
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a0), "=r"(a1), "=r"(a2), "=r"(a3)
                 : "r"(a_at)
                 : "memory");
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(b0), "=r"(b1) : "r"(b_at) : "memory");
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    store16x8(d, c);
}

// Transposes 16 x 16 by ldmatrix.trans and stmatrix.
__global__ void matrixTranspose(const __half *in, __half *out)
{
    __shared__ __align__(16) __half from[256], to[256];
    int lane = threadIdx.x;
    for (int i = lane; i < 256; i += 32)
        from[i] = in[i];
    __syncwarp();
    uint32_t r0, r1, r2, r3;
    uint32_t source = (uint32_t)__cvta_generic_to_shared(from + lane % 16 * 16 + lane / 16 * 8);
    uint32_t target = (uint32_t)__cvta_generic_to_shared(to + (lane % 8 + lane / 16 * 8) * 16 + lane / 8 % 2 * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
                 : "r"(source)
                 : "memory");
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(target), "r"(r0), "r"(r1), "r"(r2),
                 "r"(r3)
                 : "memory");
    __syncwarp();
    for (int i = lane; i < 256; i += 32)
        out[i] = to[i];
}

using namespace nvcuda;

__global__ void wmmaHalf(const __half *a, const __half *b, float *d, int k)
{
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    for (int i = 0; i < k; i += 16) {
        wmma::load_matrix_sync(fa, a + i, k);
        wmma::load_matrix_sync(fb, b + i, k);
        wmma::mma_sync(fc, fa, fb, fc);
    }
    wmma::store_matrix_sync(d, fc, 16, wmma::mem_row_major);
}

__global__ void wmmaInteger(const signed char *a, const signed char *b, int *d)
{
    __shared__ int tile[256];
    wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, int> fc;
    wmma::fill_fragment(fc, 7);
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(tile, fc, 16, wmma::mem_row_major);
    __syncwarp();
    for (int i = threadIdx.x; i < 256; i += 32)
        d[i] = tile[i];
}

__global__ void wmmaTall(const __half *a, const __half *b, __half *d)
{
    wmma::fragment<wmma::matrix_a, 32, 8, 16, __half, wmma::col_major> fa;
    wmma::fragment<wmma::matrix_b, 32, 8, 16, __half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 32, 8, 16, __half> fc;
    wmma::fill_fragment(fc, __float2half(2.0f));
    wmma::load_matrix_sync(fa, a, 32);
    wmma::load_matrix_sync(fb, b, 8);
    wmma::mma_sync(fc, fa, fb, fc);
    for (int i = 0; i < fc.num_elements; i++)
        fc.x[i] = __hneg(fc.x[i]);
    wmma::store_matrix_sync(d, fc, 8, wmma::mem_row_major);
}

// Host side: element of D where A is by rows of `k` and B by columns of `k`.
template <typename T> static T dot(const std::vector<T> &a, const std::vector<T> &b, int row, int column, int k)
{
    T sum = 0;
    for (int i = 0; i < k; i++)
        sum += a[row * k + i] * b[column * k + i];
    return sum;
}

template <typename T> static std::vector<float> floats(const std::vector<T> &values)
{
    std::vector<float> result;
    for (T value : values)
        result.push_back((float)value);
    return result;
}

static const auto HALF = [](uint32_t i) { return __float2half((float)small(i)); };
static const auto BYTE = [](uint32_t i) { return (signed char)(number(i) % 256); };

template <typename T> static std::vector<int> integers(const std::vector<T> &values)
{
    return std::vector<int>(values.begin(), values.end());
}

static const corpus::Case cases[] = {
    {"mmaHalf",
     [] {
         Buffer<__half> a(256, HALF), b(128, [](uint32_t i) { return __float2half((float)small(i + 999)); });
         Buffer<float> d(128);
         mmaHalf<<<1, 32>>>(a.device, b.device, d.device);
         auto fa = floats(a.host), fb = floats(b.host);
         report("mmaHalf", d, [&](uint32_t i) { return dot(fa, fb, i / 8, i % 8, 16) + (i / 8 / 8 * 2 + i % 2 + 1); });
     }},
    {"mmaBfloat",
     [] {
         auto value = [](uint32_t i) { return __float2bfloat16((float)small(i)); };
         Buffer<__nv_bfloat16> a(256, value), b(128, value);
         Buffer<float> d(128);
         mmaBfloat<<<1, 32>>>(a.device, b.device, d.device);
         auto fa = floats(a.host), fb = floats(b.host);
         report("mmaBfloat", d, [&](uint32_t i) { return 3 * dot(fa, fb, i / 8, i % 8, 16); });
     }},
    {"mmaTensorFloat",
     [] {
         auto value = [](uint32_t i) { return (float)small(i); };
         Buffer<float> a(128, value), b(64, value), d(128);
         mmaTensorFloat<<<1, 32>>>(a.device, b.device, d.device);
         report("mmaTensorFloat", d, [&](uint32_t i) { return dot(a.host, b.host, i / 8, i % 8, 8); });
     }},
    {"mmaInteger",
     [] {
         Buffer<signed char> a(512, BYTE), b(256, BYTE);
         Buffer<int> d(128);
         mmaInteger<<<1, 32>>>(a.device, b.device, d.device);
         auto ia = integers(a.host), ib = integers(b.host);
         report("mmaInteger", d, [&](uint32_t i) { return dot(ia, ib, i / 8, i % 8, 32); });
     }},
    {"mmaDouble",
     [] {
         auto value = [](uint32_t i) { return (double)small(i) / 4; };
         Buffer<double> a(32, value), b(32, value), d(64);
         mmaDouble<<<1, 32>>>(a.device, b.device, d.device);
         report("mmaDouble", d, [&](uint32_t i) { return dot(a.host, b.host, i / 8, i % 8, 4) + (i % 2 ? -0.5 : 0.5); });
     }},
    {"mmaFromShared",
     [] {
         Buffer<__half> a(256, HALF), b(128, HALF);
         Buffer<float> d(128);
         mmaFromShared<<<1, 32>>>(a.device, b.device, d.device);
         auto fa = floats(a.host), fb = floats(b.host);
         report("mmaFromShared", d, [&](uint32_t i) { return dot(fa, fb, i / 8, i % 8, 16); });
     }},
    {"matrixTranspose",
     [] {
         Buffer<__half> in(256, [](uint32_t i) { return __float2half((float)i); }), out(256);
         matrixTranspose<<<1, 32>>>(in.device, out.device);
         report("matrixTranspose", out, [&](uint32_t i) { return in.host[i % 16 * 16 + i / 16]; });
     }},
    {"wmmaHalf",
     [] {
         const int k = 48;
         Buffer<__half> a(16 * k, HALF), b(16 * k, HALF);
         Buffer<float> d(256);
         wmmaHalf<<<1, 32>>>(a.device, b.device, d.device, k);
         auto fa = floats(a.host), fb = floats(b.host);
         report("wmmaHalf", d, [&](uint32_t i) { return dot(fa, fb, i / 16, i % 16, k); });
     }},
    {"wmmaInteger",
     [] {
         Buffer<signed char> a(256, BYTE), b(256, BYTE);
         Buffer<int> d(256);
         wmmaInteger<<<1, 32>>>(a.device, b.device, d.device);
         auto ia = integers(a.host), ib = integers(b.host);
         report("wmmaInteger", d, [&](uint32_t i) { return dot(ia, ib, i / 16, i % 16, 16) + 7; });
     }},
    {"wmmaTall",
     [] {
         Buffer<__half> a(512, HALF), b(128, HALF), d(256);
         wmmaTall<<<1, 32>>>(a.device, b.device, d.device);
         report("wmmaTall", d, [&](uint32_t i) {
             float sum = 2;
             for (int k = 0; k < 16; k++)
                 sum += (float)a.host[k * 32 + i / 8] * (float)b.host[k * 8 + i % 8];
             return __float2half(-sum);
         });
     }},
};

int main(int argc, char **argv) { return corpus::run(argc, argv, cases); }

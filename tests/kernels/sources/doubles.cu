// Double precision: products, division and roots that must be rounded right, functions, atomics.
#include <cmath>

#include "corpus.h"

__global__ void doubleMatmul(const double *a, const double *b, double *c, int n)
{
    __shared__ double as[8][8], bs[8][8];
    int row = blockIdx.y * 8 + threadIdx.y, column = blockIdx.x * 8 + threadIdx.x;
    double sum = 0;
    for (int k = 0; k < n; k += 8) {
        as[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        bs[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        __syncthreads();
        for (int i = 0; i < 8; i++)
            sum = fma(as[threadIdx.y][i], bs[i][threadIdx.x], sum);
        __syncthreads();
    }
    c[row * n + column] = sum;
}

__global__ void doubleDivide(const double *in, double *out)
{
    double x = in[threadIdx.x], y = in[(threadIdx.x + 17) % blockDim.x];
    out[threadIdx.x * 2] = x / y;
    out[threadIdx.x * 2 + 1] = sqrt(fabs(x)) + __drcp_rn(y);
}

__global__ void doubleFunctions(const double *in, double *out)
{
    double x = in[threadIdx.x];
    out[threadIdx.x * 4] = exp(x * 0.25);
    out[threadIdx.x * 4 + 1] = sin(x) * cos(x * 3);
    out[threadIdx.x * 4 + 2] = log(fabs(x) + 0.125);
    out[threadIdx.x * 4 + 3] = pow(fabs(x) + 1, 1.75) + tgamma(fabs(x) + 0.5);
}

// Kahan's sum: a compiler that reorders it changes the result.
__global__ void doubleKahan(const double *in, double *out, int n)
{
    double sum = 0, lost = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        double value = __dsub_rn(in[i], lost), next = __dadd_rn(sum, value);
        lost = __dsub_rn(__dsub_rn(next, sum), value);
        sum = next;
    }
    out[threadIdx.x] = sum;
}

__global__ void doubleAtomics(const double *in, double *out)
{
    double value = in[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(out, value);
    // The greatest by compare and swap: order of doubles that are not negative is that of their bits.
    unsigned long long *most = (unsigned long long *)(out + 1), seen = *most;
    while (__longlong_as_double(seen) < fabs(value)) {
        unsigned long long before = atomicCAS(most, seen, (unsigned long long)__double_as_longlong(fabs(value)));
        if (before == seen)
            break;
        seen = before;
    }
}

static const auto FRACTION = [](uint32_t i) { return ((int)(number(i) % 20001) - 10000) / 977.0; };

static const corpus::Case cases[] = {
    {"doubleMatmul",
     [] {
         const int n = 24;
         Buffer<double> a(n * n, FRACTION), b(n * n, FRACTION), c(n * n);
         doubleMatmul<<<dim3(3, 3), dim3(8, 8)>>>(a.device, b.device, c.device, n);
         report("doubleMatmul", c, [&](uint32_t i) {
             double sum = 0;
             for (int k = 0; k < n; k++)
                 sum = std::fma(a.host[i / n * n + k], b.host[k * n + i % n], sum);
             return sum;
         });
     }},
    {"doubleDivide",
     [] {
         Buffer<double> in(64, FRACTION), out(128);
         doubleDivide<<<1, 64>>>(in.device, out.device);
         report("doubleDivide", out, [&](uint32_t i) {
             double x = in.host[i / 2], y = in.host[(i / 2 + 17) % 64];
             return i % 2 ? std::sqrt(std::fabs(x)) + 1.0 / y : x / y;
         });
     }},
    {"doubleFunctions",
     [] {
         Buffer<double> in(64, FRACTION), out(256);
         doubleFunctions<<<1, 64>>>(in.device, out.device);
         report("doubleFunctions", out);
     }},
    {"doubleKahan",
     [] {
         const int n = 500;
         Buffer<double> in(n, FRACTION), out(32);
         doubleKahan<<<1, 32>>>(in.device, out.device, n);
         report("doubleKahan", out, [&](uint32_t t) {
             volatile double sum = 0, lost = 0;
             for (int i = (int)t; i < n; i += 32) {
                 volatile double value = in.host[i] - lost, next = sum + value, grown = next - sum;
                 lost = grown - value;
                 sum = next;
             }
             return (double)sum;
         });
     }},
    {"doubleAtomics",
     [] {
         // Quarters: their sum is exact in any order.
         Buffer<double> in(128, [](uint32_t i) { return small(i) * 0.25 - 2; }), out(2);
         doubleAtomics<<<2, 64>>>(in.device, out.device);
         report("doubleAtomics", out, [&](uint32_t i) {
             double sum = 0, most = 0;
             for (double value : in.host) {
                 sum += value;
                 most = std::fmax(most, std::fabs(value));
             }
             return i ? most : sum;
         });
     }},
};

int main(int argc, char **argv) { return corpus::run(argc, argv, cases); }

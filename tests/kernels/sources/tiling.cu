// Shared-memory tiling: every thread reads what another wrote.
#include "corpus.h"

__global__ void transposeTiled(const int *in, int *out, int n)
{
    __shared__ int tile[16][17];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x < n && y < n)
        tile[threadIdx.y][threadIdx.x] = in[y * n + x];
    __syncthreads();
    x = blockIdx.y * 16 + threadIdx.x;
    y = blockIdx.x * 16 + threadIdx.y;
    if (x < n && y < n)
        out[y * n + x] = tile[threadIdx.x][threadIdx.y];
}

__global__ void matmulTiled(const float *a, const float *b, float *c, int n)
{
    __shared__ float as[8][8], bs[8][8];
    int row = blockIdx.y * 8 + threadIdx.y, column = blockIdx.x * 8 + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k += 8) {
        as[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        bs[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        __syncthreads();
        for (int i = 0; i < 8; i++)
            sum += as[threadIdx.y][i] * bs[i][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

__global__ void stencilHalo(const int *in, int *out, int n)
{
    const int radius = 3;
    __shared__ int line[64 + 2 * radius];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    line[threadIdx.x + radius] = i < n ? in[i] : 0;
    if (threadIdx.x < radius) {
        line[threadIdx.x] = i >= radius ? in[i - radius] : 0;
        line[threadIdx.x + 64 + radius] = i + 64 < n ? in[i + 64] : 0;
    }
    __syncthreads();
    int sum = 0;
    for (int k = -radius; k <= radius; k++)
        sum += line[threadIdx.x + radius + k] * (k + 5);
    if (i < n)
        out[i] = sum;
}

__global__ void scanShared(const unsigned *in, unsigned *out)
{
    __shared__ unsigned steps[2][128];
    int t = threadIdx.x, now = 0;
    steps[0][t] = in[blockIdx.x * 128 + t];
    __syncthreads();
    for (int distance = 1; distance < 128; distance *= 2) {
        steps[1 - now][t] = steps[now][t] + (t >= distance ? steps[now][t - distance] : 0);
        now = 1 - now;
        __syncthreads();
    }
    out[blockIdx.x * 128 + t] = steps[now][t];
}

__global__ void histogramShared(const unsigned *in, unsigned *out, int n)
{
    extern __shared__ unsigned bins[];
    for (int i = threadIdx.x; i < 64; i += blockDim.x)
        bins[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&bins[in[i] % 64], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 64; i += blockDim.x)
        atomicAdd(&out[i], bins[i]);
}

static const corpus::Case cases[] = {
    {"transposeTiled",
     [] {
         const int n = 40;
         Buffer<int> in(n * n, [](uint32_t i) { return (int)number(i); }), out(n * n);
         transposeTiled<<<dim3(3, 3), dim3(16, 16)>>>(in.device, out.device, n);
         report("transposeTiled", out, [&](uint32_t i) { return in.host[i % n * n + i / n]; });
     }},
    {"matmulTiled",
     [] {
         const int n = 32;
         auto value = [](uint32_t i) { return (float)small(i); };
         Buffer<float> a(n * n, value), b(n * n, value), c(n * n);
         matmulTiled<<<dim3(4, 4), dim3(8, 8)>>>(a.device, b.device, c.device, n);
         report("matmulTiled", c, [&](uint32_t i) {
             float sum = 0;
             for (int k = 0; k < n; k++)
                 sum += a.host[i / n * n + k] * b.host[k * n + i % n];
             return sum;
         });
     }},
    {"stencilHalo",
     [] {
         const int n = 200;
         Buffer<int> in(n, [](uint32_t i) { return small(i); }), out(n);
         stencilHalo<<<4, 64>>>(in.device, out.device, n);
         report("stencilHalo", out, [&](uint32_t i) {
             int sum = 0;
             for (int k = -3; k <= 3; k++) {
                 int at = (int)i + k;
                 sum += at >= 0 && at < n ? in.host[at] * (k + 5) : 0;
             }
             return sum;
         });
     }},
    {"scanShared",
     [] {
         Buffer<unsigned> in(384, number), out(384);
         scanShared<<<3, 128>>>(in.device, out.device);
         report("scanShared", out, [&](uint32_t i) {
             unsigned sum = 0;
             for (uint32_t k = i / 128 * 128; k <= i; k++)
                 sum += in.host[k];
             return sum;
         });
     }},
    {"histogramShared",
     [] {
         const int n = 1000;
         Buffer<unsigned> in(n, number), out(64);
         histogramShared<<<2, 96, 64 * sizeof(unsigned)>>>(in.device, out.device, n);
         report("histogramShared", out, [&](uint32_t i) {
             unsigned count = 0;
             for (unsigned value : in.host)
                 count += value % 64 == i;
             return count;
         });
     }},
};

int main(int argc, char **argv) { return corpus::run(argc, argv, cases); }

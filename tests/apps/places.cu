// Kernels that do known things at known places, each launched LAUNCHES times with BLOCKS blocks of THREADS threads. Each
// prints what it computed. tests/suite/src/places.rs knows how often each place is passed.
#include <cstdio>
#include <cuda_runtime.h>

#define CHECK(call)                                                                          \
    do {                                                                                     \
        cudaError_t error = (call);                                                          \
        if (error != cudaSuccess) {                                                          \
            fprintf(stderr, "places: %s: %s\n", #call, cudaGetErrorString(error));           \
            return 1;                                                                        \
        }                                                                                    \
    } while (0)

constexpr int BLOCKS = 6, THREADS = 64, LAUNCHES = 2, ROUNDS = 5, TOTAL = BLOCKS * THREADS;

__device__ int linear() { return blockIdx.x * blockDim.x + threadIdx.x; }

// Two loads of 16 bytes, one of 4, a store of 16.
__global__ void vectors(const float4 *in, const float *scale, float4 *out)
{
    int i = linear();
    float4 a = in[i], b = in[i + TOTAL];
    float s = scale[i];
    out[i] = float4{a.x + b.x * s, a.y + b.y * s, a.z + b.z * s, a.w + b.w * s};
}

// Two barriers a round; warp 0 has work to do in front of the first.
__global__ void waits(int *out)
{
    __shared__ int sum;
    int i = linear(), mine = 0;
    if (threadIdx.x == 0)
        sum = 0;
#pragma unroll 1
    for (int round = 0; round < ROUNDS; round++) {
        if (threadIdx.x < 32)
#pragma unroll 1
            for (int k = 0; k < 200; k++)
                mine = mine * 3 + k;
        asm volatile("bar.sync 1;" ::: "memory");
        atomicAdd(&sum, 1);
        asm volatile("bar.sync 1;" ::: "memory");
    }
    out[i] = sum + mine;
}

// Called threadIdx.x % 4 times by each thread.
__device__ __noinline__ int collatz(int n) { return n % 2 ? 3 * n + 1 : n / 2; }

__global__ void calls(int *out)
{
    int value = linear() + 7;
#pragma unroll 1
    for (int k = 0; k < threadIdx.x % 4; k++)
        value = collatz(value);
    out[linear()] = value;
}

// Parameters of every size, dynamic shared memory and a cluster.
struct Large {
    unsigned long long first;
    int more[10];
};

extern __shared__ int scratch[];

__global__ void given(int *out, unsigned n, double ratio, short small, Large large)
{
    scratch[threadIdx.x] = threadIdx.x * n;
    __syncthreads();
    out[linear()] = scratch[THREADS - 1 - threadIdx.x] + int(ratio * 4) + small + large.more[9];
}

// An instruction that no compiler makes of anything else.
__global__ void products(int *out)
{
    unsigned sum, a = threadIdx.x, b = 0x02020202;
    asm volatile("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(blockIdx.x));
    out[linear()] = sum;
}

// From here on, lines have numbers that stay.

// One branch, taken by lanes 0 to 4 of each warp; and a loop, whose end the lanes of a warp reach one after the other.
__global__ void diverges(int *out)
{
    int lane = threadIdx.x % 32, value = 1;
#line 1001
    asm volatile("{ .reg .pred few;\n\t"
                 "setp.lt.u32 few, %1, 5;\n\t"
                 "@few bra OVER;\n\t"
                 "add.u32 %0, %0, 100;\n\t"
                 "OVER: }"
                 : "+r"(value)
                 : "r"(lane));
    asm volatile("{ .reg .pred more; .reg .u32 k;\n\t"
                 "mov.u32 k, %1;\n\t"
                 "AGAIN: add.u32 %0, %0, k;\n\t"
                 "setp.ne.u32 more, k, 0;\n\t"
                 "sub.u32 k, k, 1;\n\t"
                 "@more bra AGAIN;\n\t"
                 "}"
                 : "+r"(value)
                 : "r"(lane));
    out[linear()] = value;
}

__global__ void numbered(int *out, int n)
{
    int i = linear();
#line 2000
    if (i >= n)
        return;
    out[i] = i;
    if (i % 2)
        out[i] += n;
}

static int *device;
static int host[TOTAL];

static int show(const char *name)
{
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host, device, sizeof(host), cudaMemcpyDeviceToHost));
    CHECK(cudaMemset(device, 0, sizeof(host)));
    unsigned long long sum = 0;
    for (int value : host)
        sum = sum * 31 + (unsigned)value;
    printf("%s %d %d %016llx\n", name, host[0], host[TOTAL - 1], sum);
    return 0;
}

static int launch_vectors()
{
    static float4 values[2 * TOTAL];
    static float scales[TOTAL];
    for (int i = 0; i < 2 * TOTAL; i++)
        values[i] = float4{i * 0.5f, i * 0.25f, 1.0f, float(i)};
    for (int i = 0; i < TOTAL; i++)
        scales[i] = i % 7;
    float4 *in, *out;
    float *scale;
    CHECK(cudaMalloc(&in, sizeof(values)));
    CHECK(cudaMalloc(&out, sizeof(values) / 2));
    CHECK(cudaMalloc(&scale, sizeof(scales)));
    CHECK(cudaMemcpy(in, values, sizeof(values), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(scale, scales, sizeof(scales), cudaMemcpyHostToDevice));
    for (int i = 0; i < LAUNCHES; i++)
        vectors<<<BLOCKS, THREADS>>>(in, scale, out);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(values, out, sizeof(values) / 2, cudaMemcpyDeviceToHost));
    double sum = 0;
    for (int i = 0; i < TOTAL; i++)
        sum += values[i].x + 3 * values[i].y + 5 * values[i].z + 7 * values[i].w;
    printf("vectors %.6f\n", sum);
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    CHECK(cudaFree(scale));
    return 0;
}

static int launch_given()
{
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = 2;
    cluster.val.clusterDim.y = 1;
    cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(BLOCKS);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = 1024;
    config.attrs = &cluster;
    config.numAttrs = 1;
    Large large = {0x1122334455667788, {0, 0, 0, 0, 0, 0, 0, 0, 0, 9}};
    for (int i = 0; i < LAUNCHES; i++)
        CHECK(cudaLaunchKernelEx(&config, given, device, 3u, 2.5, short(-2), large));
    return 0;
}

int main()
{
    CHECK(cudaMalloc(&device, sizeof(host)));
    CHECK(cudaMemset(device, 0, sizeof(host)));
    if (launch_vectors())
        return 1;
    for (int i = 0; i < LAUNCHES; i++)
        waits<<<BLOCKS, THREADS>>>(device);
    if (show("waits"))
        return 1;
    for (int i = 0; i < LAUNCHES; i++)
        diverges<<<BLOCKS, THREADS>>>(device);
    if (show("diverges"))
        return 1;
    for (int i = 0; i < LAUNCHES; i++)
        calls<<<BLOCKS, THREADS>>>(device);
    if (show("calls"))
        return 1;
    if (launch_given() || show("given"))
        return 1;
    for (int i = 0; i < LAUNCHES; i++)
        products<<<BLOCKS, THREADS>>>(device);
    if (show("products"))
        return 1;
    for (int i = 0; i < LAUNCHES; i++)
        numbered<<<BLOCKS, THREADS>>>(device, 300);
    if (show("numbered"))
        return 1;
    CHECK(cudaFree(device));
    return 0;
}

// GPU time of memory-bound kernels with probes: vec_add, and a stencil of more accesses for each byte of memory. Ours are in
// `vadd` and `stencil`, hand-written ones in the `hand_` kernels, all in one run.
// Each kernel is replayed as a graph, so launch cost is out. Prints one line per kernel and size:
//   KERNEL N MICROSECONDS right|WRONG
// and where a hand-written ring had no room, or a table was not what it should be, `lost KERNEL N TIMES`;
// and at the end, for each of `vadd` and `stencil` that ran, over all of its launches:
//   threads KERNEL THREADS
//   accesses KERNEL ACCESSES BYTES
// usage: vecadd [kernel ...]   (default: all)
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include <unistd.h>

#define CHECK(call)                                                                          \
    do {                                                                                     \
        cudaError_t error = (call);                                                          \
        if (error != cudaSuccess) {                                                          \
            fprintf(stderr, "vecadd: %s: %s\n", #call, cudaGetErrorString(error));           \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

typedef unsigned long long u64;

struct Probe {
    u64 *counters;   // one per SM, 128 bytes apart
    u64 *slots;      // one per thread
    u64 *reserved;   // one per SM, 128 bytes apart; what a consumer has taken stands 64 bytes behind it
    u64 *commits;    // eight per SM
    char *rings;     // one per SM
    u64 ring_bytes;  // a power of two
    u64 *lost;       // records that found no room
    u64 *table;      // TABLE values
};

constexpr int TABLE = 1024;

__device__ __forceinline__ unsigned smid()
{
    unsigned r;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(r));
    return r;
}
__device__ __forceinline__ unsigned lanemask_lt()
{
    unsigned r;
    asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(r));
    return r;
}
__device__ __forceinline__ u64 globaltimer()
{
    u64 r;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(r));
    return r;
}

// One add per warp, to the counter of the SM.
__device__ __forceinline__ void count(const Probe &p)
{
    unsigned mask = __activemask();
    if (!(mask & lanemask_lt()))
        asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(p.counters + 16 * smid()), "l"((u64)__popc(mask)));
}

// A 32-byte record (8 header, 24 payload) in the ring of the SM: reserve per warp, write, fence, commit. Wraps. With CHECKED, what finds no room is
// counted and not written: the leader looks at what is reserved and taken before it adds, and an eighth of the ring stays free for those that
// looked and have not added yet.
template <bool CHECKED> __device__ __forceinline__ void event(const Probe &p)
{
    unsigned mask = __activemask();
    unsigned before = lanemask_lt();
    unsigned sm = smid();
    int leader = __ffs(mask) - 1;
    unsigned lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    u64 base = 0;
    if ((int)lane == leader) {
        u64 *reserved = p.reserved + 16 * sm, there = 0, taken = 0;
        if (CHECKED) {
            asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(there) : "l"(reserved));
            asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(taken) : "l"(reserved + 8));
        }
        if (CHECKED && there - taken + 32ull * __popc(mask) > p.ring_bytes / 8 * 7)
            base = ~0ull;
        else
            base = atomicAdd(reserved, 32ull * __popc(mask));
    }
    base = __shfl_sync(mask, base, leader);
    if (CHECKED && base == ~0ull) {
        if ((int)lane == leader)
            atomicAdd(p.lost, (u64)__popc(mask));
        return;
    }
    u64 at = (base + 32 * __popc(mask & before)) & (p.ring_bytes - 1);
    ulonglong2 *record = (ulonglong2 *)(p.rings + sm * p.ring_bytes + at);
    u64 place = ((u64)threadIdx.x << 32) | blockIdx.x;
    record[0] = make_ulonglong2(24, globaltimer());
    record[1] = make_ulonglong2(place, sm);
    __threadfence();
    __syncwarp(mask);
    if ((int)lane == leader)
        atomicAdd(p.commits + 8 * sm + at / (p.ring_bytes / 8), 32ull * __popc(mask));
}

// One access: an add to each of two counters of the SM. ptxas makes one of those of a warp, and does it better than an
// elected lane, whose adds it aggregates once more.
__device__ __forceinline__ void count_access(u64 *counters, u64 bytes)
{
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], 1;" ::"l"(counters));
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(counters + 1), "l"(bytes));
}

#define BODY                                                                                 \
    int i = blockIdx.x * blockDim.x + threadIdx.x;                                           \
    if (i < n)                                                                               \
        c[i] = a[i] + b[i];

__global__ void vadd_base(const float *a, const float *b, float *c, int n) { BODY }
// The kernel that programs attach to.
__global__ void vadd(const float *a, const float *b, float *c, int n) { BODY }
__global__ void hand_counter(const float *a, const float *b, float *c, int n, Probe p)
{
    count(p);
    BODY
}
__global__ void hand_slot(const float *a, const float *b, float *c, int n, Probe p)
{
    p.slots[(u64)blockIdx.x * blockDim.x + threadIdx.x] += 1;
    BODY
}
__global__ void hand_ring(const float *a, const float *b, float *c, int n, Probe p)
{
    event<true>(p);
    BODY
}
__global__ void hand_ring_unchecked(const float *a, const float *b, float *c, int n, Probe p)
{
    event<false>(p);
    BODY
}
// As benches/probes/lookup.bpf.c: a value of a table is read, and one that is not zero is counted.
__global__ void hand_lookup(const float *a, const float *b, float *c, int n, Probe p)
{
    if (*(volatile u64 *)(p.table + (blockIdx.x * blockDim.x + threadIdx.x) % TABLE))
        atomicAdd(p.lost, 1ull);
    BODY
}
// As benches/probes/update.bpf.c: a value of a table is overwritten.
__global__ void hand_update(const float *a, const float *b, float *c, int n, Probe p)
{
    unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    *(volatile u64 *)(p.table + thread % TABLE) = thread;
    BODY
}

__global__ void hand_memory(const float *a, const float *b, float *c, int n, Probe p)
{
    u64 *counters = p.counters + 16 * smid();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        count_access(counters, 4);
        float x = a[i];
        count_access(counters, 4);
        float y = b[i];
        count_access(counters, 4);
        c[i] = x + y;
    }
}

// Elements of a row of the field.
constexpr int WIDTH = 1024;

// An element and its four neighbours; at the rim the element itself stands for those that are not there.
#define STENCIL(ACCESS)                                                                      \
    int i = blockIdx.x * blockDim.x + threadIdx.x;                                           \
    if (i < n) {                                                                             \
        int at[5] = {i, i > 0 ? i - 1 : i, i + 1 < n ? i + 1 : i, i >= WIDTH ? i - WIDTH : i, \
                     i + WIDTH < n ? i + WIDTH : i};                                         \
        float sum = 0;                                                                       \
        for (int k = 0; k < 5; k++) {                                                        \
            ACCESS;                                                                          \
            sum += a[at[k]];                                                                 \
        }                                                                                    \
        ACCESS;                                                                              \
        c[i] = sum;                                                                          \
    }

__global__ void stencil_base(const float *a, const float *, float *c, int n) { STENCIL() }
// As `vadd`.
__global__ void stencil(const float *a, const float *, float *c, int n) { STENCIL() }
__global__ void hand_stencil(const float *a, const float *, float *c, int n, Probe p)
{
    u64 *counters = p.counters + 16 * smid();
    STENCIL(count_access(counters, 4))
}

// What `fill` becomes. Multiples of a quarter, and small: sums are exact in any order.
static float added(const std::vector<float> &fill, int i, int) { return fill[i] + fill[i]; }
static float smeared(const std::vector<float> &fill, int i, int n)
{
    return fill[i] + fill[i > 0 ? i - 1 : i] + fill[i + 1 < n ? i + 1 : i] + fill[i >= WIDTH ? i - WIDTH : i] +
           fill[i + WIDTH < n ? i + WIDTH : i];
}

struct Kernel {
    const char *name;
    void *function;
    float (*expected)(const std::vector<float> &fill, int i, int n);
    int accesses; // of 4 bytes, for each element
    bool probed;  // programs attach to it
    u64 threads_run;
    u64 accesses_run;
};

static double microseconds(const Kernel &kernel, int n, int threads, int launches, int replays, void **arguments, const Probe &probe,
                           int sms)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < launches; i++)
        CHECK(cudaLaunchKernel(kernel.function, dim3((n + threads - 1) / threads), dim3(threads), arguments, 0, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    std::vector<float> times;
    for (int i = 0; i < replays + 2; i++) {
        // As if a consumer had taken everything.
        CHECK(cudaMemsetAsync(probe.reserved, 0, sms * 128, stream));
        CHECK(cudaEventRecord(begin, stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaEventRecord(end, stream));
        CHECK(cudaEventSynchronize(end));
        float ms;
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (i >= 2)
            times.push_back(ms * 1000 / launches);
        if (getenv("BENCH_PAUSE_MS")) // lets the reader of a ring catch up
            usleep(1000 * atoi(getenv("BENCH_PAUSE_MS")));
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

int main(int argc, char **argv)
{
    const int most = 1 << 26;
    float *a, *b, *c;
    CHECK(cudaMalloc(&a, most * 4ull));
    CHECK(cudaMalloc(&b, most * 4ull));
    CHECK(cudaMalloc(&c, most * 4ull));
    std::vector<float> fill(most);
    for (int i = 0; i < most; i++)
        fill[i] = (i % 1021) * 0.25f;
    CHECK(cudaMemcpy(a, fill.data(), most * 4ull, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(b, fill.data(), most * 4ull, cudaMemcpyHostToDevice));
    int sms;
    CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    Probe probe;
    probe.ring_bytes = 16 << 20;
    CHECK(cudaMalloc(&probe.counters, sms * 128));
    CHECK(cudaMalloc(&probe.slots, (most + 1024) * 8ull));
    CHECK(cudaMemset(probe.slots, 0, (most + 1024) * 8ull));
    CHECK(cudaMalloc(&probe.reserved, sms * 128));
    CHECK(cudaMalloc(&probe.commits, sms * 64));
    CHECK(cudaMalloc(&probe.rings, sms * probe.ring_bytes));
    CHECK(cudaMemset(probe.counters, 0, sms * 128));
    CHECK(cudaMemset(probe.reserved, 0, sms * 128));
    CHECK(cudaMemset(probe.commits, 0, sms * 64));
    CHECK(cudaMalloc(&probe.lost, 8));
    // All threads write one small table, so what that takes depends on where it lies: it is measured at several places.
    u64 *tables;
    const int places[] = {0, 16, 64, 112, 1 << 12, (1 << 14) + 16, (1 << 16) + 64, (1 << 20) + 48, (3 << 20) + 96};
    CHECK(cudaMalloc(&tables, (4 << 20) + TABLE * 8));
    probe.table = tables;

    Kernel kernels[] = {
        {"vadd_base", (void *)vadd_base, added, 3, false, 0, 0},
        {"vadd", (void *)vadd, added, 3, true, 0, 0},
        {"hand_counter", (void *)hand_counter, added, 3, false, 0, 0},
        {"hand_slot", (void *)hand_slot, added, 3, false, 0, 0},
        {"hand_ring", (void *)hand_ring, added, 3, false, 0, 0},
        {"hand_ring_unchecked", (void *)hand_ring_unchecked, added, 3, false, 0, 0},
        {"hand_lookup", (void *)hand_lookup, added, 3, false, 0, 0},
        {"hand_update", (void *)hand_update, added, 3, false, 0, 0},
        {"hand_memory", (void *)hand_memory, added, 3, false, 0, 0},
        {"stencil_base", (void *)stencil_base, smeared, 6, false, 0, 0},
        {"stencil", (void *)stencil, smeared, 6, true, 0, 0},
        {"hand_stencil", (void *)hand_stencil, smeared, 6, false, 0, 0},
    };
    int largest = getenv("BENCH_LARGEST") ? atoi(getenv("BENCH_LARGEST")) : most;
    for (int n : {1000, 1000000, most}) {
        if (n > largest)
            break;
        int threads = n == 1000 ? 256 : 512;
        int launches = n == most ? 1 : n == 1000 ? 50 : 10;
        int replays = getenv("BENCH_REPLAYS") ? atoi(getenv("BENCH_REPLAYS")) : 25;
        for (Kernel &kernel : kernels) {
            bool wanted = argc < 2;
            for (int i = 1; i < argc; i++)
                wanted |= !strcmp(argv[i], kernel.name);
            if (!wanted)
                continue;
            void *arguments[] = {&a, &b, &c, &n, &probe};
            CHECK(cudaMemset(c, 0xff, n * 4ull));
            CHECK(cudaMemset(probe.lost, 0, 8));
            CHECK(cudaMemset(tables, 0, (4 << 20) + TABLE * 8));
            std::vector<double> times;
            for (int place : places) {
                probe.table = tables + place / 8;
                if (place == 0 || kernel.function == (void *)hand_update)
                    times.push_back(microseconds(kernel, n, threads, launches, replays, arguments, probe, sms));
            }
            probe.table = tables;
            std::sort(times.begin(), times.end());
            double time = times[times.size() / 2];
            if (times.size() > 1)
                printf("places %s %d %.3f %.3f\n", kernel.name, n, times.front(), times.back());
            u64 lost;
            CHECK(cudaMemcpy(&lost, probe.lost, 8, cudaMemcpyDeviceToHost));
            std::vector<float> result(n);
            CHECK(cudaMemcpy(result.data(), c, n * 4ull, cudaMemcpyDeviceToHost));
            bool right = true;
            for (int i = 0; i < n; i++)
                right &= result[i] == kernel.expected(fill, i, n);
            printf("%s %d %.3f %s\n", kernel.name, n, time, right ? "right" : "WRONG");
            if (lost)
                printf("lost %s %d %llu\n", kernel.name, n, lost);
            u64 runs = (u64)launches * (replays + 2);
            kernel.threads_run += (u64)((n + threads - 1) / threads) * threads * runs;
            kernel.accesses_run += (u64)n * kernel.accesses * runs;
        }
    }
    for (const Kernel &kernel : kernels)
        if (kernel.probed && kernel.threads_run) {
            printf("threads %s %llu\n", kernel.name, kernel.threads_run);
            printf("accesses %s %llu %llu\n", kernel.name, kernel.accesses_run, kernel.accesses_run * 4);
        }
    return 0;
}

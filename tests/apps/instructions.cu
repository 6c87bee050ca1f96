// Barriers of each kind, asynchronous copies, rows of matrices, shared memory of other blocks, and calls: a kernel for each. How often each thread executes
// what does not turn on time, as whoever waits tries once, for what has come. tests/suite/src/instructions.rs knows how often.
// usage: instructions [launches]
#include <cstdint>
#include <vector>
#include "check.h"

constexpr int BLOCKS = 6, THREADS = 128, TOTAL = BLOCKS * THREADS;

__device__ int linear() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ uint32_t shared_address(const void *at) { return (uint32_t)__cvta_generic_to_shared(at); }

__global__ void barriers(const int4 *, int *out)
{
    __shared__ int part[THREADS];
    part[threadIdx.x] = linear();
    __syncthreads();
    int sum = part[THREADS - 1 - threadIdx.x];
    if (threadIdx.x < 64) {
#pragma unroll 1
        for (int k = 0; k < 3; k++)
            asm volatile("barrier.sync 1, 64;" ::: "memory");
    }
    int odd = __syncthreads_count(sum & 1);
    out[linear()] = sum + odd;
}

// Half of the threads do not wait.
__global__ void halves(const int4 *, int *out)
{
    if (threadIdx.x < 64)
        asm volatile("barrier.arrive 2, 128;" ::: "memory");
    else
        asm volatile("barrier.sync 2, 128;" ::: "memory");
    out[linear()] = linear();
}

// Some lanes of each warp, and all of them.
__global__ void lanes(const int4 *, int *out)
{
    int mine = linear();
    if (threadIdx.x % 32 < 8) {
#pragma unroll 1
        for (int k = 0; k < 5; k++) {
            mine = mine * 3 + k;
            asm volatile("bar.warp.sync 0xff;" ::: "memory");
        }
    }
    asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
    out[linear()] = mine;
}

__global__ void copies(const int4 *in, int *out)
{
    __shared__ int4 to[3][THREADS];
    const int4 *from = in + linear();
    int4 *own[3] = { &to[0][threadIdx.x], &to[1][threadIdx.x], &to[2][threadIdx.x] };
    uint32_t at[3] = { shared_address(own[0]), shared_address(own[1]), shared_address(own[2]) };
    int bytes = threadIdx.x % 4 == 0 ? 0 : 16;
    *own[1] = make_int4(0, 0, 0, 0);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at[0]), "l"(from) : "memory");
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(at[1]), "l"(from) : "memory");
    if (threadIdx.x % 2)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at[1] + 8), "l"(from) : "memory");
    asm volatile("cp.async.commit_group;\n\tcp.async.wait_group 0;" ::: "memory");
    // Where nothing is read there are zeros.
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at[2]), "l"(from), "r"(bytes) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    out[linear()] = own[0]->w + own[1]->y * 3 + own[1]->z * 5 + own[2]->x * 7;
}

__global__ void matrices(const int4 *in, int *out)
{
    __shared__ int4 rows[THREADS];
    rows[threadIdx.x] = in[linear()];
    __syncthreads();
    uint32_t at = shared_address(&rows[threadIdx.x]), a, b, c, d, sum;
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(a) : "r"(at) : "memory");
    sum = a;
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(at) : "memory");
    sum += a * 3 + b * 5;
#pragma unroll 1
    for (int k = 0; k < 2; k++) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                     : "r"(at)
                     : "memory");
        sum += a * 7 + b * 11 + c * 13 + d * 17;
    }
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(at), "r"(sum), "r"(sum * 3) : "memory");
    __syncthreads();
    out[linear()] = sum + rows[threadIdx.x].y;
}

// Two blocks of a cluster load from each other's shared memory, store there, and add; each lane elsewhere, as the compiler would add once for those that meet.
__global__ void __cluster_dims__(2) neighbours(const int4 *, int *out)
{
    __shared__ int mine[THREADS], given[THREADS];
    uint32_t rank, far[2];
    int there, before = 0, *generic;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    mine[threadIdx.x] = linear();
    asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory");
    const int *places[2] = { &mine[threadIdx.x], &given[threadIdx.x] };
    for (int k = 0; k < 2; k++)
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(far[k]) : "r"(shared_address(places[k])), "r"(1 - rank));
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(there) : "r"(far[0]) : "memory");
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(far[1]), "r"(there * 3) : "memory");
    if (threadIdx.x < 32)
        asm volatile("atom.shared::cluster.add.u32 %0, [%1], 2;" : "=r"(before) : "r"(far[1]) : "memory");
    // The same by an address that does not say where it is.
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(generic) : "l"(places[1]), "r"(1 - rank));
    if (threadIdx.x < 32)
        atomicAdd(generic, 7);
    asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory");
    out[linear()] = given[threadIdx.x] + before * 5;
}

// All arrive before anybody asks, so a single try is enough.
__global__ void phases(const int4 *in, int *out)
{
    __shared__ uint64_t barrier;
    __shared__ int4 to[THREADS];
    uint32_t at = shared_address(&barrier), done = 0;
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(THREADS) : "memory");
    __syncthreads();
    asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(at) : "memory");
    __syncthreads();
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(at)
                 : "memory");
    uint32_t twice;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                 : "=r"(twice)
                 : "r"(at)
                 : "memory");
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&to[threadIdx.x])), "l"(in + linear())
                 : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    out[linear()] = done + twice * 2 + to[threadIdx.x].x;
}

__device__ __noinline__ int collatz(int value)
{
    int steps = 0;
    for (; value > 1; steps++)
        value = value % 2 ? value * 3 + 1 : value / 2;
    return steps;
}

__global__ void calls(const int4 *, int *out)
{
    int steps = 0;
#pragma unroll 1
    for (int k = 1; k < 4; k++)
        steps += collatz(linear() + k);
    // As one more call, of some threads only.
    if (threadIdx.x % 2)
        steps += collatz(steps);
    out[linear()] = steps;
}

// PTX ISA "Matrix Descriptor Format": no swizzle, core matrices of 8 rows of 16 bytes.
__device__ uint64_t descriptor(const void *at, uint64_t across, uint64_t along)
{
    uint64_t address = shared_address(at);
    return (address >> 4 & 0x3fff) | (across >> 4) << 16 | (along >> 4) << 32;
}

__global__ void products(const int4 *in, int *out)
{
    __shared__ __align__(128) char a[64 * 32], b[8 * 32];
    // The same half in each place.
    for (int i = threadIdx.x; i < 64 * 8; i += THREADS)
        ((uint32_t *)a)[i] = 0x3c003c00;
    for (int i = threadIdx.x; i < 8 * 8; i += THREADS)
        ((uint32_t *)b)[i] = 0x40004000;
    __syncthreads();
    float c[4] = {};
    asm volatile("fence.proxy.async;\n\twgmma.fence.sync.aligned;" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])::"memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "l"(descriptor(a, 128, 256)), "l"(descriptor(b, 128, 256))
                 : "memory");
    asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::: "memory");
    out[linear()] = (int)(c[0] + c[1] + c[2] + c[3]) + in[linear()].x;
}

int main(int argc, char **argv)
{
    int launches = argc > 1 ? atoi(argv[1]) : 2;
    std::vector<int4> host(TOTAL);
    for (int i = 0; i < TOTAL; i++)
        host[i] = make_int4(i, i * 2 + 1, i * 3 + 2, i * 5 + 3);
    int4 *in;
    int *out;
    CHECK(cudaMalloc(&in, TOTAL * sizeof(int4)));
    CHECK(cudaMalloc(&out, TOTAL * sizeof(int)));
    CHECK(cudaMemcpy(in, host.data(), TOTAL * sizeof(int4), cudaMemcpyHostToDevice));
    struct {
        const char *name;
        void (*kernel)(const int4 *, int *);
    } all[] = {
        { "barriers", barriers }, { "halves", halves }, { "lanes", lanes }, { "copies", copies }, { "matrices", matrices },
        { "neighbours", neighbours }, { "phases", phases }, { "calls", calls }, { "products", products },
    };
    for (auto [name, kernel] : all) {
        for (int k = 0; k < launches; k++)
            kernel<<<BLOCKS, THREADS>>>(in, out);
        CHECK(cudaGetLastError());
        std::vector<int> result(TOTAL);
        CHECK(cudaMemcpy(result.data(), out, TOTAL * sizeof(int), cudaMemcpyDeviceToHost));
        unsigned long long hash = 1469598103934665603ull;
        for (int value : result)
            hash = (hash ^ (unsigned)value) * 1099511628211ull;
        printf("%s %016llx\n", name, hash);
    }
    return 0;
}

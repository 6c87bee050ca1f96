// Thread block clusters: blocks that read, write and wait for each other's shared memory.
#include <cooperative_groups.h>

#include "barriers.h"
#include "corpus.h"

namespace cg = cooperative_groups;

__global__ void __cluster_dims__(4) rotateShared(const int *in, int *out)
{
    __shared__ int mine[32];
    cg::cluster_group cluster = cg::this_cluster();
    int at = blockIdx.x * 32 + threadIdx.x;
    mine[threadIdx.x] = in[at];
    cluster.sync();
    const int *next = cluster.map_shared_rank(mine, (cluster.block_rank() + 1) % cluster.num_blocks());
    out[at] = next[threadIdx.x] - mine[31 - threadIdx.x];
    // Nobody leaves while others read.
    cluster.sync();
}

// Bins spread over the cluster: 16 in each block.
__global__ void __cluster_dims__(2) histogramCluster(const unsigned *in, unsigned *out, int n)
{
    __shared__ unsigned bins[16];
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x < 16)
        bins[threadIdx.x] = 0;
    cluster.sync();
    for (int i = cluster.thread_rank(); i < n; i += cluster.num_threads()) {
        unsigned bin = in[i] % 32;
        atomicAdd(cluster.map_shared_rank(&bins[bin % 16], bin / 16), 1u);
    }
    cluster.sync();
    if (threadIdx.x < 16)
        out[cluster.block_rank() * 16 + threadIdx.x] = bins[threadIdx.x];
}

// The same by hand: mapa, st.shared::cluster, barrier.cluster in two halves.
__global__ void __cluster_dims__(2, 2) exchangePtx(int *out)
{
    __shared__ int given[32];
    uint32_t rank, ranks, x, y, remote;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(ranks));
    asm volatile("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(x));
    asm volatile("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(y));
    asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(&given[threadIdx.x])), "r"(ranks - 1 - rank));
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(remote), "r"(rank * 1000 + x * 100 + y * 10 + threadIdx.x) : "memory");
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    int block = blockIdx.y * gridDim.x + blockIdx.x;
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
    out[block * 32 + threadIdx.x] = given[threadIdx.x];
}

// No dimensions in the code: the launch gives them.
__global__ void clusterOfLaunch(int *out)
{
    __shared__ int rank;
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0)
        rank = cluster.block_rank();
    cluster.sync();
    int sum = 0;
    for (unsigned other = 0; other < cluster.num_blocks(); other++)
        sum += *cluster.map_shared_rank(&rank, other) * (int)(other + 1);
    cluster.sync();
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum * 10 + cluster.num_blocks();
}

// Asynchronous stores into the other block, which waits for their bytes.
__global__ void __cluster_dims__(2) storeAsync(int *out)
{
    __shared__ __align__(16) int inbox[32];
    __shared__ uint64_t barrier;
    cg::cluster_group cluster = cg::this_cluster();
    unsigned other = 1 - cluster.block_rank();
    if (threadIdx.x == 0) {
        barrier_init(&barrier, 1);
        barrier_init_visible();
        barrier_expect(&barrier, sizeof(inbox));
    }
    cluster.sync();
    uint32_t there, barrier_there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(&inbox[threadIdx.x])), "r"(other));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier_there) : "r"(shared_address(&barrier)), "r"(other));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(there),
                 "r"(threadIdx.x * 7 + blockIdx.x), "r"(barrier_there)
                 : "memory");
    barrier_wait(&barrier, 0);
    out[blockIdx.x * 32 + threadIdx.x] = inbox[threadIdx.x];
    cluster.sync();
}

static const corpus::Case cases[] = {
    {"rotateShared",
     [] {
         Buffer<int> in(256, [](uint32_t i) { return (int)(number(i) % 1000); }), out(256);
         rotateShared<<<8, 32>>>(in.device, out.device);
         report("rotateShared", out, [&](uint32_t i) {
             uint32_t next = i / 128 * 128 + (i + 32) % 128;
             return in.host[next] - in.host[i / 32 * 32 + 31 - i % 32];
         });
     }},
    {"histogramCluster",
     [] {
         const int n = 500;
         Buffer<unsigned> in(n, number), out(32);
         histogramCluster<<<2, 64>>>(in.device, out.device, n);
         report("histogramCluster", out, [&](uint32_t i) {
             unsigned count = 0;
             for (unsigned value : in.host)
                 count += value % 32 == i;
             return count;
         });
     }},
    {"exchangePtx",
     [] {
         Buffer<int> out(8 * 32);
         exchangePtx<<<dim3(4, 2), 32>>>(out.device);
         report("exchangePtx", out, [](uint32_t i) {
             // Block (x, y) of a cluster of 2 x 2 gets what block (1 - x, 1 - y) gave.
             int x = 1 - i / 32 % 2, y = 1 - i / 128;
             return (y * 2 + x) * 1000 + x * 100 + y * 10 + (int)(i % 32);
         });
     }},
    {"clusterOfLaunch",
     [] {
         Buffer<int> out(8 * 32);
         cudaLaunchAttribute attribute = {};
         attribute.id = cudaLaunchAttributeClusterDimension;
         attribute.val.clusterDim.x = 4;
         attribute.val.clusterDim.y = 1;
         attribute.val.clusterDim.z = 1;
         cudaLaunchConfig_t config = {};
         config.gridDim = 8;
         config.blockDim = 32;
         config.attrs = &attribute;
         config.numAttrs = 1;
         CHECK(cudaLaunchKernelEx(&config, clusterOfLaunch, out.device));
         report("clusterOfLaunch", out, [](uint32_t) { return (1 * 2 + 2 * 3 + 3 * 4) * 10 + 4; });
     }},
    {"storeAsync",
     [] {
         Buffer<int> out(128);
         storeAsync<<<4, 32>>>(out.device);
         report("storeAsync", out, [](uint32_t i) { return (int)(i % 32 * 7 + (i / 32 ^ 1)); });
     }},
};

int main(int argc, char **argv) { return corpus::run(argc, argv, cases); }

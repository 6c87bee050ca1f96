// Kernels that may begin before the kernel before them has ended (programmatic dependent launch), in a stream and in a graph, and kernels in clusters. Each
// multiplies what the one before left, so one that reads too early shows. Says what came out and how many launches of each kind there were.
#include <vector>

#include "check.h"

constexpr unsigned BLOCKS = 8, THREADS = 64, WORDS = BLOCKS * THREADS, CHAIN = 6, GRAPH_LAUNCHES = 3;

__global__ void probedChain(unsigned *words, unsigned factor)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    // Another block's word, so that all of the kernel before must have written.
    unsigned other = (i + 5 * THREADS) % WORDS, parity = factor % 2;
    words[parity * WORDS + i] = words[(1 - parity) * WORDS + other] * 3 + factor;
    __threadfence();
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__global__ void probedCluster(unsigned *words)
{
    unsigned rank = 0, size = 1, i = blockIdx.x * blockDim.x + threadIdx.x;
#if __CUDA_ARCH__ >= 900
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
#endif
    words[i] = words[i] * 5 + rank * 10 + size;
}

static unsigned *words;
static cudaStream_t stream;

static void show(const char *what)
{
    std::vector<unsigned> values(2 * WORDS);
    unsigned sum = 0;
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(values.data(), words, 2 * WORDS * 4, cudaMemcpyDeviceToHost));
    for (unsigned value : values)
        sum = sum * 31 + value;
    printf("%s: %08x\n", what, sum);
}

static cudaLaunchConfig_t shape(cudaLaunchAttribute *attribute)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(BLOCKS);
    config.blockDim = dim3(THREADS);
    config.stream = stream;
    config.attrs = attribute;
    config.numAttrs = attribute != nullptr;
    return config;
}

static void chain()
{
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    for (unsigned i = 0; i < CHAIN; i++) {
        // The first one waits for all before it.
        cudaLaunchConfig_t config = shape(i == 0 ? nullptr : &overlap);
        CHECK(cudaLaunchKernelEx(&config, probedChain, words, i));
    }
}

int main()
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaMalloc(&words, 2 * WORDS * 4));
    CHECK(cudaMemset(words, 1, 2 * WORDS * 4));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());
    chain();
    show("a chain");

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    chain();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (unsigned i = 0; i < GRAPH_LAUNCHES; i++)
        CHECK(cudaGraphLaunch(exec, stream));
    show("a chain in a graph");
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));

    for (unsigned size = 1; size <= 4; size *= 2) {
        cudaLaunchAttribute cluster = {};
        cluster.id = cudaLaunchAttributeClusterDimension;
        cluster.val.clusterDim.x = size;
        cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
        cudaLaunchConfig_t config = shape(&cluster);
        CHECK(cudaLaunchKernelEx(&config, probedCluster, words));
    }
    show("clusters");
    CHECK(cudaFree(words));
    return 0;
}

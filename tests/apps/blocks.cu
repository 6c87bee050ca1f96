// Blocks of every kind: whole warps and parts of one, several dimensions, one thread, threads that leave at different times and in a
// function, blocks that wait at barriers; in streams that run at once and in a graph. Says what came out and how often each kernel ran.
#include "check.h"

constexpr int STREAMS = 4, ROUNDS = 6, GRAPH_LAUNCHES = 5;
constexpr unsigned WORDS = 4096;

__device__ unsigned linear()
{
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    return block * blockDim.x * blockDim.y * blockDim.z + thread;
}

__global__ void whole(unsigned *words)
{
    atomicAdd(&words[linear() % WORDS], 1u);
}

// Threads leave at three places, after as many rounds as they like.
__global__ void ragged(unsigned *words, unsigned n)
{
    unsigned i = linear();
    if (i >= n)
        return;
    if (i % 3 == 0) {
        atomicAdd(&words[i % WORDS], 2u);
        return;
    }
    for (unsigned k = 0; k < i % 17; k++)
        if (atomicAdd(&words[k], 1u) == 0xffffffffu)
            return;
}

__device__ __noinline__ unsigned leave(unsigned i)
{
    if (i % 5 == 2)
        asm volatile("exit;");
    return i * 2;
}

__global__ void inFunction(unsigned *words)
{
    unsigned i = linear();
    atomicAdd(&words[i % WORDS], leave(i));
}

__global__ void waiting(unsigned *words)
{
    __shared__ unsigned sum;
    if (threadIdx.x == 0)
        sum = 0;
    __syncthreads();
    atomicAdd(&sum, threadIdx.x);
    if (threadIdx.x % 7 == 3)
        return;
    __syncthreads();
    if (threadIdx.x == 1)
        atomicAdd(&words[blockIdx.x], sum);
}

// What only its module has: it is instrumented there.
__constant__ unsigned factor;
__global__ void constantFactor(unsigned *words)
{
    atomicAdd(&words[linear() % WORDS], factor);
}

static unsigned *words;

static void launch_all(cudaStream_t stream)
{
    whole<<<dim3(5), dim3(128), 0, stream>>>(words);
    whole<<<dim3(300), dim3(1), 0, stream>>>(words);
    ragged<<<dim3(3, 2, 2), dim3(33, 3, 1), 0, stream>>>(words, 1000);
    inFunction<<<dim3(5), dim3(7, 5, 3), 0, stream>>>(words);
    waiting<<<dim3(2), dim3(1024), 0, stream>>>(words);
    constantFactor<<<dim3(2, 3), dim3(10, 10), 0, stream>>>(words);
    CHECK(cudaGetLastError());
}

int main()
{
    cudaStream_t streams[STREAMS];
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    unsigned three = 3, sum = 0;
    static unsigned values[WORDS];
    CHECK(cudaMalloc(&words, WORDS * 4));
    CHECK(cudaMemset(words, 0, WORDS * 4));
    CHECK(cudaMemcpyToSymbol(factor, &three, sizeof(three)));
    for (cudaStream_t &stream : streams)
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());
    for (int round = 0; round < ROUNDS; round++)
        for (cudaStream_t stream : streams)
            launch_all(stream);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal));
    launch_all(streams[0]);
    CHECK(cudaStreamEndCapture(streams[0], &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < GRAPH_LAUNCHES; i++)
        CHECK(cudaGraphLaunch(exec, streams[0]));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(values, words, sizeof(values), cudaMemcpyDeviceToHost));
    for (unsigned value : values)
        sum += value;
    printf("%d times all: %u\n", STREAMS * ROUNDS + GRAPH_LAUNCHES, sum);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(words));
    return 0;
}

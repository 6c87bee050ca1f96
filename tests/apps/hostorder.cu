// Host functions between kernels, in streams and in graphs: each looks twice at what the kernels before it have counted, which must be exactly theirs. Says
// how many host functions ran, and how many saw something else.
#include <atomic>
#include <unistd.h>

#include "check.h"

constexpr unsigned BLOCKS = 4, THREADS = 64, ROUNDS = 6, GRAPH_LAUNCHES = 3;

// The count is in the host's memory, so a host function may read it.
__global__ void probedCount(unsigned *count)
{
    atomicAdd_system(count, 1);
    __threadfence_system();
}

static std::atomic<unsigned> called, wrong;

struct Look {
    unsigned *count;
    // What it must be at this call, and how much more at the next one.
    unsigned expected, more;
};

static void CUDART_CB look(void *data)
{
    Look &look = *(Look *)data;
    for (int time = 0; time < 2; time++) {
        unsigned found = *(volatile unsigned *)look.count;
        if (found != look.expected) {
            fprintf(stderr, "hostorder: %u threads ran before a host function, expected %u\n", found, look.expected);
            wrong++;
        }
        // A kernel behind it that does not wait is seen the second time.
        usleep(500);
    }
    look.expected += look.more;
    called++;
}

static void CUDART_CB callback(cudaStream_t, cudaError_t status, void *data)
{
    if (status != cudaSuccess)
        wrong++;
    look(data);
}

static unsigned *new_count()
{
    unsigned *count;
    CHECK(cudaHostAlloc(&count, sizeof(*count), cudaHostAllocMapped));
    *count = 0;
    return count;
}

static void in_streams()
{
    constexpr int STREAMS = 3;
    static Look looks[STREAMS][2 * ROUNDS];
    cudaStream_t streams[STREAMS];
    unsigned *counts[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
        counts[i] = new_count();
    }
    for (unsigned round = 0; round < ROUNDS; round++)
        for (int i = 0; i < STREAMS; i++) {
            Look *mine = &looks[i][2 * round];
            unsigned before = 2 * round * BLOCKS * THREADS;
            probedCount<<<BLOCKS, THREADS, 0, streams[i]>>>(counts[i]);
            CHECK(cudaGetLastError());
            mine[0] = { counts[i], before + BLOCKS * THREADS, 0 };
            CHECK(cudaLaunchHostFunc(streams[i], look, &mine[0]));
            probedCount<<<BLOCKS, THREADS, 0, streams[i]>>>(counts[i]);
            CHECK(cudaGetLastError());
            mine[1] = { counts[i], before + 2 * BLOCKS * THREADS, 0 };
            CHECK(cudaStreamAddCallback(streams[i], callback, &mine[1], 0));
        }
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < STREAMS; i++)
        printf("stream %d: %u threads\n", i, *counts[i]);
}

// kernel, host function, kernel, host function: as nodes by hand, and as a capture.
static void in_graphs()
{
    constexpr unsigned ONE = BLOCKS * THREADS;
    cudaStream_t stream;
    cudaGraph_t graphs[2];
    unsigned *counts[2] = { new_count(), new_count() };
    static Look looks[2][2];
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < 2; i++) {
        looks[i][0] = { counts[i], ONE, 2 * ONE };
        looks[i][1] = { counts[i], 2 * ONE, 2 * ONE };
    }
    CHECK(cudaGraphCreate(&graphs[0], 0));
    cudaGraphNode_t last = nullptr, node;
    for (int half = 0; half < 2; half++) {
        void *list[] = { &counts[0] };
        cudaKernelNodeParams kernel = {};
        kernel.func = (void *)probedCount;
        kernel.gridDim = dim3(BLOCKS);
        kernel.blockDim = dim3(THREADS);
        kernel.kernelParams = list;
        CHECK(cudaGraphAddKernelNode(&node, graphs[0], &last, last != nullptr, &kernel));
        cudaHostNodeParams host = { look, &looks[0][half] };
        CHECK(cudaGraphAddHostNode(&last, graphs[0], &node, 1, &host));
    }
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int half = 0; half < 2; half++) {
        probedCount<<<BLOCKS, THREADS, 0, stream>>>(counts[1]);
        CHECK(cudaLaunchHostFunc(stream, look, &looks[1][half]));
    }
    CHECK(cudaStreamEndCapture(stream, &graphs[1]));
    for (int i = 0; i < 2; i++) {
        cudaGraphExec_t exec;
        CHECK(cudaGraphInstantiate(&exec, graphs[i], 0));
        for (unsigned time = 0; time < GRAPH_LAUNCHES; time++)
            CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaGraphExecDestroy(exec));
        CHECK(cudaGraphDestroy(graphs[i]));
        printf("graph %d: %u threads\n", i, *counts[i]);
    }
}

int main()
{
    // The soft GPU runs streams on threads of their own only if it is told to. A GPU does not know the word.
    setenv("WARPBPF_SOFT_ASYNC", "1", 0);
    in_streams();
    in_graphs();
    printf("host functions: %u, wrong: %u\n", called.load(), wrong.load());
    return wrong.load() != 0;
}

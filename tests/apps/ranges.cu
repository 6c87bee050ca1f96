// Launches inside of NVTX ranges and outside of them, from several threads and a forked child's side:
//
//   ranges            twelve launches of `tick`, four of `tock` in graphs; ranges of every kind
//   ranges streams    launches in streams of every kind
//   ranges fork       ranges before a fork; the child starts CUDA and launches in the range that it was forked in
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "check.h"
#include "nvtx.h"

__global__ void tick(unsigned *count)
{
    if (threadIdx.x == 0)
        atomicAdd(count, 1);
}

__global__ void tock(unsigned *count)
{
    if (threadIdx.x == 0)
        atomicAdd(count, 100);
}

static unsigned *count;

// Not inlined, so that stacks have them.
__attribute__((noinline)) static void launch(cudaStream_t stream = nullptr)
{
    tick<<<1, 32, 0, stream>>>(count);
    CHECK(cudaGetLastError());
}

static void show()
{
    unsigned sum;
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&sum, count, sizeof(sum), cudaMemcpyDeviceToHost));
    printf("%u\n", sum);
}

__attribute__((noinline)) static void allocate()
{
    CHECK(cudaMalloc(&count, sizeof(*count)));
    CHECK(cudaMemset(count, 0, sizeof(*count)));
}

static int streams()
{
    cudaStream_t copies, again;
    allocate();
    launch();
    launch();
    CHECK(cudaStreamCreate(&copies));
    name_stream(copies, "copies");
    launch(copies);
    launch(cudaStreamPerThread);
    std::thread other([] {
        launch(cudaStreamPerThread);
        launch(cudaStreamPerThread);
    });
    other.join();
    // Streams that come by turns may have one handle.
    for (int i = 1; i < 3; i++) {
        CHECK(cudaStreamCreateWithPriority(&again, cudaStreamNonBlocking, 0));
        for (int n = 0; n < i; n++)
            launch(again);
        CHECK(cudaStreamSynchronize(again));
        CHECK(cudaStreamDestroy(again));
    }
    launch(cudaStreamLegacy);
    show();
    return 0;
}

static int forked()
{
    push("parent");
    pid_t child = fork();
    if (child == 0) {
        push("child");
        allocate();
        launch();
        pop();
        pop();
        launch();
        show();
        exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        return 1;
    allocate();
    launch();
    pop();
    launch();
    launch();
    show();
    return 0;
}

static void graphs()
{
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    cudaGraphExec_t execs[2];
    for (int i = 0; i < 2; i++) {
        cudaGraph_t graph;
        if (i == 0)
            push("captured");
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        tock<<<1, 32, 0, stream>>>(count);
        CHECK(cudaGetLastError());
        CHECK(cudaStreamEndCapture(stream, &graph));
        if (i == 0)
            pop();
        CHECK(cudaGraphInstantiateWithFlags(&execs[i], graph, 0));
        CHECK(cudaGraphDestroy(graph));
    }
    // The range of a graph's launch is not that of its kernels' capture.
    push("launched");
    for (cudaGraphExec_t exec : execs)
        for (int i = 0; i < 2; i++)
            CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    pop();
    for (cudaGraphExec_t exec : execs)
        CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaStreamDestroy(stream));
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "fork"))
        return forked();
    if (argc > 1 && !strcmp(argv[1], "streams"))
        return streams();
    // Before CUDA: kept until the tool has said what it wants.
    printf("%d", push("early"));
    // One end too many for it.
    printf(" %d", pop());
    printf(" %d\n", pop());
    name_thread(gettid(), "main");
    // A timeline begins with the first image, which the runtime of CUDA 13 loads when something of it is asked for.
    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, tick));
    allocate();
    cudaStream_t copies;
    CHECK(cudaStreamCreate(&copies));
    name_stream(copies, "copies");
    launch();

    push("step");
    launch();
    push("forward");
    launch(copies);
    launch();
    pop();
    push_wide(L"backward \u03bb");
    launch();
    pop();
    pop();

    mark("half");

    // In a domain; its end does not end the range of another one.
    void *libraries = domain("lib");
    void *twice = registered(libraries, "reduce");
    push_in(libraries, event_of(3, twice));
    push("step");
    pop_in(libraries);
    launch();
    pop();
    push_in(libraries, event_of(1, "gather"));
    launch();
    pop_in(libraries);

    // The process is in it, so its threads are.
    uint64_t epoch = start("epoch");
    std::thread in_epoch([] { launch(); });
    in_epoch.join();
    end(epoch);
    // The thread's own ranges are nobody else's.
    push("step");
    std::thread other([] {
        push("loader");
        launch();
        // Never ended: the thread is gone.
    });
    other.join();
    pop();

    // More than are known by name, and as many ends.
    for (int i = 0; i < 70; i++)
        push("deep");
    launch();
    for (int i = 0; i < 70; i++)
        pop();
    launch();
    graphs();
    push("unended");
    launch();
    show();
    return 0;
}

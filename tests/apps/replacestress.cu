// Launches in every way at once, from many threads, while somebody exchanges programs: plainly in four streams each, by graphs that
// are captured anew again and again, from modules that come and go, and two kernels that wait for each other. Arguments: threads, then words: `meet`
// for those two kernels, `everywhere` for threads on two GPUs. Runs until its input ends. What it prints is how often it launched each kernel; what the kernels themselves counted must be the same.
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "check.h"

constexpr int STREAMS = 4;
constexpr long long PATIENCE = 20'000'000'000; // clock cycles: ten seconds

// How often each kernel ran: work, extra, ping, pong.
__device__ unsigned long long ran[4];
__device__ volatile unsigned met[2];
__device__ unsigned lost;

__global__ void work(unsigned *out)
{
    atomicAdd(out + threadIdx.x, 1);
    if (threadIdx.x == 0 && blockIdx.x == 0)
        atomicAdd(&ran[0], 1ULL);
}

// Neither ends before the other one has begun.
__device__ void meet(int me, unsigned round)
{
    if (threadIdx.x == 0) {
        long long begun = clock64();
        met[me] = round;
        __threadfence();
        while (met[1 - me] < round) {
            if (clock64() - begun > PATIENCE) {
                atomicAdd(&lost, 1);
                break;
            }
        }
        atomicAdd(&ran[2 + me], 1ULL);
    }
}

__global__ void ping(unsigned round) { meet(0, round); }
__global__ void pong(unsigned round) { meet(1, round); }

// A module of its own, as programs make them at run time.
static const char EXTRA[] = R"(
.version 7.8
.target sm_80
.address_size 64
.visible .entry extra(.param .u64 counter)
{
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<4>;
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra DONE;
    ld.param.u64 %rd1, [counter];
    cvta.to.global.u64 %rd2, %rd1;
    atom.global.add.u64 %rd3, [%rd2], 1;
DONE:
    ret;
}
)";

static std::atomic<bool> over{false};
static std::atomic<unsigned long long> made[4];
// Loads may wait for kernels that run: the application itself does not load between two launches that wait for each other.
static std::mutex loading;

static void plain(cudaStream_t stream, unsigned *out)
{
    work<<<2, 32, 0, stream>>>(out);
    CHECK(cudaGetLastError());
    made[0]++;
}

static void graph(cudaStream_t stream, unsigned *out)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    work<<<1, 32, 0, stream>>>(out);
    work<<<1, 32, 0, stream>>>(out);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int n = 0; n < 3; n++) {
        CHECK(cudaGraphLaunch(exec, stream));
        made[0] += 2;
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

static void module(cudaStream_t stream, unsigned long long *counter)
{
    CUmodule module;
    CUfunction extra;
    void *parameters[] = {&counter};
    {
        std::lock_guard<std::mutex> held(loading);
        DRIVER(cuModuleLoadData, &module, EXTRA);
    }
    DRIVER(cuModuleGetFunction, &extra, module, "extra");
    for (int n = 0; n < 4; n++) {
        DRIVER(cuLaunchKernel, extra, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
        made[1]++;
    }
    CHECK(cudaStreamSynchronize(stream));
    std::lock_guard<std::mutex> held(loading);
    DRIVER(cuModuleUnload, module);
}

static void thread(unsigned number, int device, unsigned long long *counter)
{
    cudaStream_t streams[STREAMS];
    unsigned *out;
    CHECK(cudaSetDevice(device));
    CHECK(cudaMalloc((void **)&out, STREAMS * 128));
    for (auto &stream : streams)
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (unsigned turn = number; !over; turn++) {
        for (int n = 0; n < 32; n++)
            plain(streams[n % STREAMS], out + n % STREAMS * 32);
        if (turn % 4 == 0)
            graph(streams[turn / 4 % STREAMS], out + turn / 4 % STREAMS * 32);
        if (turn % 64 == 1)
            module(streams[0], counter);
        if (turn % 16 == 2) {
            void *memory;
            CHECK(cudaMallocAsync(&memory, 1 << 20, streams[1]));
            CHECK(cudaMemsetAsync(memory, 1, 1 << 20, streams[1]));
            CHECK(cudaFreeAsync(memory, streams[1]));
        }
        for (auto &stream : streams)
            CHECK(cudaStreamSynchronize(stream));
    }
    for (auto &stream : streams)
        CHECK(cudaStreamDestroy(stream));
}

static std::atomic<unsigned> launching{0}, launched{0};

// Two kernels that wait for each other, each from a thread and in a stream of its own: a launch may return only when its kernel ends.
static void leads(cudaStream_t stream)
{
    for (unsigned round = 1; !over; round++) {
        std::lock_guard<std::mutex> held(loading);
        launching = round;
        ping<<<1, 32, 0, stream>>>(round);
        CHECK(cudaGetLastError());
        made[2]++;
        while (launched < round)
            std::this_thread::yield();
        CHECK(cudaStreamSynchronize(stream));
    }
    launching = ~0u;
}

static void follows(cudaStream_t stream)
{
    for (unsigned round = 1;; round++) {
        while (launching < round)
            std::this_thread::yield();
        if (launching == ~0u)
            return;
        pong<<<1, 32, 0, stream>>>(round);
        CHECK(cudaGetLastError());
        made[3]++;
        launched = round;
        CHECK(cudaStreamSynchronize(stream));
    }
}

int main(int argc, char **argv)
{
    const char *names[] = {"work", "extra", "ping", "pong"};
    unsigned threads = argc > 1 ? atoi(argv[1]) : 8, missed = 0;
    unsigned long long counted[4] = {};
    std::vector<std::thread> all;
    cudaStream_t pair[2];
    int devices = 1;
    bool meets = false;
    std::vector<void *> counters;
    for (int n = 2; n < argc; n++) {
        meets |= !strcmp(argv[n], "meet");
        if (!strcmp(argv[n], "everywhere"))
            devices = 2;
    }

    // Each stream a queue of its own, as far as there are any: one that waits must not stand before the one that it waits for.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    // A driver that loads lazily would load the second one at its first launch, and wait for the first one with that.
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    for (auto &stream : pair)
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int device = 0; device < devices; device++) {
        void *counter;
        CHECK(cudaSetDevice(device));
        CHECK(cudaGetSymbolAddress(&counter, ran));
        counters.push_back(counter);
    }
    CHECK(cudaSetDevice(0));
    if (meets) {
        all.emplace_back(leads, pair[0]);
        all.emplace_back(follows, pair[1]);
    }
    for (unsigned n = 0; n < threads; n++)
        all.emplace_back(thread, n, n % devices, (unsigned long long *)counters[n % devices] + 1);
    printf("running\n");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    over = true;
    for (auto &one : all)
        one.join();
    for (int device = 0; device < devices; device++) {
        unsigned long long here[4];
        unsigned late;
        CHECK(cudaSetDevice(device));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpyFromSymbol(here, ran, sizeof(here)));
        CHECK(cudaMemcpyFromSymbol(&late, lost, sizeof(late)));
        for (int n = 0; n < 4; n++)
            counted[n] += here[n];
        missed += late;
    }
    for (int n = 0; n < 4; n++) {
        printf("%s %llu\n", names[n], made[n].load());
        if (counted[n] != made[n]) {
            fprintf(stderr, "%s was launched %llu times and ran %llu times\n", names[n], made[n].load(), counted[n]);
            return 2;
        }
    }
    if (missed) {
        fprintf(stderr, "%u times a kernel waited for one that did not come\n", missed);
        return 3;
    }
    return 0;
}

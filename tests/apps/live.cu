// Does what it is told by lines of standard input, so that somebody can attach to it between two of them: a number is that many
// launches of each kernel, after which the results so far are printed; with a `g` in front of it the kernels are launched as a graph, which is instantiated with the
// first such line, or again with a `G`, or with a `u` updated by what is captured anew. With a `p` they go to the stream of the thread. From a `(` to a `)` the kernels
// are captured, the first one at once and the other at the end, into the graph of later lines with a `g`; from a `[` to a `]` both at the end, and once more with each `|`. With `!` and the name of a system call a filter
// forbids that from then on; with `+` and a name an NVTX range begins, and ends with `-`. Ends with its input.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "check.h"
#include "nvtx.h"

__device__ unsigned long long steps;
__constant__ int factor = 3;

__global__ void step(unsigned int *sum)
{
    atomicAdd(sum, threadIdx.x);
    if (threadIdx.x == 0)
        atomicAdd(&steps, 1ULL);
}

// A constant is in the module itself, so code beside this would have to be, too.
__global__ void scaled(unsigned int *sum)
{
    atomicAdd(sum + 1, threadIdx.x * factor);
}

static cudaGraph_t captured(unsigned int *device)
{
    cudaStream_t stream;
    cudaGraph_t graph;

    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    step<<<4, 64, 0, stream>>>(device);
    scaled<<<2, 32, 0, stream>>>(device);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaStreamDestroy(stream));
    return graph;
}

static cudaGraphExec_t instantiated(unsigned int *device)
{
    cudaGraph_t graph = captured(device);
    cudaGraphExec_t exec;

    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return exec;
}

// Begun and ended by two lines: meanwhile somebody else may do what a capture does not bear.
static cudaStream_t begin(unsigned int *device, bool launches)
{
    cudaStream_t stream;

    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    if (launches)
        step<<<4, 64, 0, stream>>>(device);
    CHECK(cudaGetLastError());
    return stream;
}

static cudaGraphExec_t end(cudaStream_t stream, unsigned int *device, bool launches)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;

    if (launches)
        step<<<4, 64, 0, stream>>>(device);
    scaled<<<2, 32, 0, stream>>>(device);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return exec;
}

static void update(cudaGraphExec_t exec, unsigned int *device)
{
    cudaGraph_t graph = captured(device);
    cudaGraphExecUpdateResultInfo told = {};

    CHECK(cudaGraphExecUpdate(exec, graph, &told));
    CHECK(cudaGraphDestroy(graph));
}

// In all threads that there are, and will be.
static void forbid(const char *name)
{
    static const struct {
        const char *name;
        unsigned number;
    } calls[] = {
        { "reboot", SYS_reboot }, { "memfd_create", SYS_memfd_create }, { "socketpair", SYS_socketpair }, { "clone3", SYS_clone3 },
    };
    unsigned call = 0, known = 0;
    for (auto &each : calls)
        if (!strcmp(each.name, name))
            call = each.number, known = 1;
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog filter = { sizeof(code) / sizeof(*code), code };
    if (!known || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter)) {
        perror("live: a filter");
        exit(1);
    }
    printf("forbidden\n");
    fflush(stdout);
}

static int serve()
{
    unsigned int *device, sums[2];
    unsigned long long counted;
    cudaGraphExec_t exec = nullptr;
    cudaStream_t open = nullptr;
    char line[64];

    CHECK(cudaMalloc((void **)&device, sizeof(sums)));
    CHECK(cudaMemset(device, 0, sizeof(sums)));
    while (fgets(line, sizeof(line), stdin)) {
        if (line[0] == '!') {
            line[strcspn(line, "\n")] = 0;
            forbid(line + 1);
            continue;
        }
        if (line[0] == '+' || line[0] == '-') {
            line[strcspn(line, "\n")] = 0;
            line[0] == '+' ? push(line + 1) : pop();
            printf(line[0] == '+' ? "in %s\n" : "out\n", line + 1);
            fflush(stdout);
            continue;
        }
        if (line[0] == '|') {
            step<<<4, 64, 0, open>>>(device);
            scaled<<<2, 32, 0, open>>>(device);
            CHECK(cudaGetLastError());
            printf("capturing\n");
            fflush(stdout);
            continue;
        }
        if (strchr("([)]", line[0])) {
            bool begins = line[0] == '(' || line[0] == '[';
            if (begins)
                open = begin(device, line[0] == '(');
            else
                exec = end(open, device, line[0] == ']');
            printf(begins ? "capturing\n" : "captured\n");
            fflush(stdout);
            continue;
        }
        cudaStream_t stream = line[0] == 'p' ? cudaStreamPerThread : nullptr;
        bool again = line[0] == 'G', anew = line[0] == 'u', in_graph = again || anew || line[0] == 'g';
        if (exec && again) {
            CHECK(cudaGraphExecDestroy(exec));
            exec = nullptr;
        }
        if (in_graph && !exec)
            exec = instantiated(device);
        else if (anew)
            update(exec, device);
        for (int n = atoi(line + (in_graph || stream)); n > 0; n--) {
            if (in_graph) {
                CHECK(cudaGraphLaunch(exec, nullptr));
                continue;
            }
            step<<<4, 64, 0, stream>>>(device);
            scaled<<<2, 32, 0, stream>>>(device);
            CHECK(cudaGetLastError());
        }
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(sums, device, sizeof(sums), cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpyFromSymbol(&counted, steps, sizeof(counted)));
        printf("%u %u %llu\n", sums[0], sums[1], counted);
        fflush(stdout);
    }
    return 0;
}

// With an argument the main thread ends, and another one does all that.
int main(int argc, char **)
{
    if (argc == 1) {
        // So that it is called, and not jumped to: stacks begin with this.
        volatile int code = serve();
        return code;
    }
    std::thread([] { exit(serve()); }).detach();
    pthread_exit(nullptr);
}

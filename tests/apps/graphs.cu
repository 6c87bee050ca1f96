// Every way to put a kernel into a graph: by hand, by capture with forked streams, in graphs in graphs, by copies, updates and
// changed parameters. Prints what the kernels computed, what the driver tells of nodes, and how often each kernel ran.
#include "check.h"

constexpr int THREADS = 64;

// In one order only: each launch shows in the result.
__global__ void grow(unsigned *out, unsigned factor, unsigned term)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = out[i] * factor + term;
}

__global__ void mix(unsigned *to, const unsigned *from)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    to[i] += from[i] ^ i;
}

// In any order, as many at once as there are.
__global__ void add(unsigned long long *sum, unsigned n)
{
    atomicAdd(sum, (unsigned long long)n * (threadIdx.x + 1));
}

// A name that warpbpf's own code has: it cannot be instrumented.
__global__ void sealed(unsigned *out)
{
    unsigned was;
    asm volatile("{\n\t.reg .b32 wbpf_own;\n\tadd.u32 wbpf_own, %1, 1;\n\tmov.u32 %0, wbpf_own;\n}" : "=r"(was) : "r"(threadIdx.x));
    atomicAdd(out, was);
}

enum Kernel { GROW, MIX, ADD, SEALED };
static const char *const names[] = { "grow", "mix", "add", "sealed" };
static unsigned launches[4], blocks[4];

// What a launch of a graph runs.
static void ran(Kernel kernel, unsigned n_launches, unsigned n_blocks)
{
    launches[kernel] += n_launches;
    blocks[kernel] += n_launches * n_blocks;
}

constexpr int MOST = 3 * THREADS;
static unsigned *x, *y, *sealed_sum;
static unsigned long long *sum;
static cudaStream_t stream;

static void show(const char *what)
{
    unsigned values[MOST], hash[2];
    CHECK(cudaStreamSynchronize(stream));
    for (int which = 0; which < 2; which++) {
        CHECK(cudaMemcpy(values, which ? y : x, sizeof(values), cudaMemcpyDeviceToHost));
        hash[which] = 2166136261u;
        for (unsigned each : values)
            hash[which] = (hash[which] ^ each) * 16777619u;
    }
    printf("%s: %08x %08x\n", what, hash[0], hash[1]);
}

// A node that runs `grow`.
struct Grow {
    unsigned *out;
    unsigned factor, term;
    void *list[3];
    cudaKernelNodeParams params;

    Grow(unsigned *out, unsigned factor, unsigned term, unsigned n_blocks = 2) : out(out), factor(factor), term(term)
    {
        list[0] = &this->out;
        list[1] = &this->factor;
        list[2] = &this->term;
        params = {};
        params.func = (void *)grow;
        params.gridDim = dim3(n_blocks);
        params.blockDim = dim3(THREADS);
        params.kernelParams = list;
    }
};

static cudaGraphExec_t instantiate(cudaGraph_t graph)
{
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    return exec;
}

static void launch(cudaGraphExec_t exec, int times)
{
    while (times--)
        CHECK(cudaGraphLaunch(exec, stream));
}

static void by_hand()
{
    cudaGraph_t graph;
    cudaGraphNode_t set, first, second, copy;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaMemsetParams fill = {};
    fill.dst = y;
    fill.value = 7;
    fill.elementSize = 4;
    fill.width = MOST;
    fill.height = 1;
    CHECK(cudaGraphAddMemsetNode(&set, graph, nullptr, 0, &fill));
    Grow one(x, 3, 1), two(x, 5, 2);
    CHECK(cudaGraphAddKernelNode(&first, graph, &set, 1, &one.params));
    CHECK(cudaGraphAddKernelNode(&second, graph, nullptr, 0, &two.params));
    CHECK(cudaGraphAddDependencies(graph, &first, &second, nullptr, 1));
    CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, &second, 1, y, x, 256, cudaMemcpyDeviceToDevice));
    cudaGraphExec_t exec = instantiate(graph);
    launch(exec, 3);
    ran(GROW, 6, 2);
    show("nodes by hand");

    // The application is told what it gave.
    cudaKernelNodeParams told;
    CHECK(cudaGraphKernelNodeGetParams(second, &told));
    printf("told: the kernel %d, %u blocks, factor %u, term %u\n", told.func == (void *)grow, told.gridDim.x,
           *(unsigned *)told.kernelParams[1], *(unsigned *)told.kernelParams[2]);
    unsigned factor = 11;
    void *list[] = { told.kernelParams[0], &factor, told.kernelParams[2] };
    told.kernelParams = list;
    told.gridDim = dim3(3);
    CHECK(cudaGraphKernelNodeSetParams(second, &told));
    cudaGraphExec_t larger = instantiate(graph);
    launch(larger, 2);
    ran(GROW, 2, 2);
    ran(GROW, 2, 3);
    launch(exec, 1);
    ran(GROW, 2, 2);
    show("a changed node");
    Grow three(x, 9, 4, 1);
    CHECK(cudaGraphExecKernelNodeSetParams(exec, first, &three.params));
    launch(exec, 2);
    ran(GROW, 2, 1);
    ran(GROW, 2, 2);
    CHECK(cudaGraphNodeSetEnabled(exec, second, 0));
    launch(exec, 1);
    ran(GROW, 1, 1);
    CHECK(cudaGraphNodeSetEnabled(exec, second, 1));
    launch(exec, 1);
    ran(GROW, 1, 1);
    ran(GROW, 1, 2);
    show("an executable graph's changed nodes");

    // Any node by one function.
    cudaGraphNode_t any;
    cudaGraphNodeParams generic = {};
    Grow four(y, 2, 3);
    generic.type = cudaGraphNodeTypeKernel;
    generic.kernel.func = (void *)grow;
    generic.kernel.gridDim = dim3(2);
    generic.kernel.blockDim = dim3(THREADS);
    generic.kernel.kernelParams = four.list;
    CHECK(cudaGraphAddNode(&any, graph, &copy, nullptr, 1, &generic));
    four.term = 6;
    cudaGraphExec_t with_any = instantiate(graph);
    CHECK(cudaGraphExecNodeSetParams(with_any, any, &generic));
    launch(with_any, 1);
    ran(GROW, 2, 2);
    ran(GROW, 1, 3);
    show("a node of any kind");
    CHECK(cudaGraphExecDestroy(with_any));
    CHECK(cudaGraphExecDestroy(larger));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

// grow and mix in two streams.
static cudaGraph_t capture(unsigned factor, bool longer)
{
    cudaStream_t side;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&fork));
    CHECK(cudaEventCreate(&join));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    grow<<<2, THREADS, 0, stream>>>(x, factor, 1);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(fork, stream));
    CHECK(cudaStreamWaitEvent(side, fork, 0));
    mix<<<3, THREADS, 0, side>>>(y, x);
    if (longer)
        mix<<<3, THREADS, 0, side>>>(y, x);
    CHECK(cudaEventRecord(join, side));
    CHECK(cudaStreamWaitEvent(stream, join, 0));
    grow<<<3, THREADS, 0, stream>>>(x, factor + 2, 3);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaEventDestroy(join));
    CHECK(cudaStreamDestroy(side));
    return graph;
}

static void captured(int times)
{
    ran(GROW, times, 2);
    ran(MIX, times, 3);
    ran(GROW, times, 3);
}

static void by_capture()
{
    cudaGraph_t graph = capture(3, false), other = capture(5, false), longer = capture(7, true), parent, copy;
    show("captured, and nothing ran");
    cudaGraphNode_t nodes[4];
    size_t n_nodes = 4;
    CHECK(cudaGraphGetNodes(graph, nodes, &n_nodes));
    for (size_t i = 0; i < n_nodes; i++) {
        cudaKernelNodeParams told;
        CHECK(cudaGraphKernelNodeGetParams(nodes[i], &told));
        printf("captured: grow %d, mix %d, %u blocks\n", told.func == (void *)grow, told.func == (void *)mix, told.gridDim.x);
        // Given again as it was told.
        CHECK(cudaGraphKernelNodeSetParams(nodes[i], &told));
    }
    cudaGraphExec_t exec = instantiate(graph);
    launch(exec, 2);
    captured(2);
    show("a capture");

    // The same executable graph, with another capture in it.
    cudaGraphExecUpdateResultInfo told = {};
    CHECK(cudaGraphExecUpdate(exec, other, &told));
    launch(exec, 1);
    captured(1);
    cudaError_t refused = cudaGraphExecUpdate(exec, longer, &told);
    printf("an update with another shape: %d\n", refused == cudaErrorGraphExecUpdateFailure);
    cudaGetLastError();
    launch(exec, 1);
    captured(1);
    show("updated");

    // A graph in a graph, and a copy of both.
    cudaGraphNode_t child, inner, last;
    CHECK(cudaGraphCreate(&parent, 0));
    CHECK(cudaGraphAddChildGraphNode(&child, parent, nullptr, 0, graph));
    Grow after(y, 3, 5, 1);
    CHECK(cudaGraphAddKernelNode(&last, parent, &child, 1, &after.params));
    CHECK(cudaGraphClone(&copy, parent));
    CHECK(cudaGraphNodeFindInClone(&inner, last, copy));
    Grow changed(y, 7, 1, 2);
    CHECK(cudaGraphKernelNodeSetParams(inner, &changed.params));
    cudaGraphExec_t with_child = instantiate(parent), with_copy = instantiate(copy);
    CHECK(cudaGraphDestroy(parent));
    CHECK(cudaGraphDestroy(copy));
    launch(with_child, 2);
    captured(2);
    ran(GROW, 2, 1);
    launch(with_copy, 1);
    captured(1);
    ran(GROW, 1, 2);
    show("graphs in graphs");

    // A launch that is none of a graph.
    grow<<<3, THREADS, 0, stream>>>(x, 2, 2);
    ran(GROW, 1, 3);
    show("a launch");
    for (cudaGraphExec_t each : { exec, with_child, with_copy })
        CHECK(cudaGraphExecDestroy(each));
    for (cudaGraph_t each : { graph, other, longer })
        CHECK(cudaGraphDestroy(each));
}

// Executable graphs of one graph in many streams at once, each with the same kernel in branches of its own.
static void at_once()
{
    constexpr int EXECS = 4, TIMES = 16;
    cudaGraph_t graph;
    cudaGraphNode_t root, node;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddEmptyNode(&root, graph, nullptr, 0));
    for (unsigned branch = 1; branch <= 3; branch++) {
        void *list[] = { &sum, &branch };
        cudaKernelNodeParams params = {};
        params.func = (void *)add;
        params.gridDim = dim3(40);
        params.blockDim = dim3(THREADS);
        params.kernelParams = list;
        CHECK(cudaGraphAddKernelNode(&node, graph, &root, 1, &params));
    }
    cudaGraphExec_t execs[EXECS];
    cudaStream_t streams[EXECS];
    for (int i = 0; i < EXECS; i++) {
        execs[i] = instantiate(graph);
        CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    }
    for (int time = 0; time < TIMES; time++)
        for (int i = 0; i < EXECS; i++) {
            CHECK(cudaGraphLaunch(execs[i], streams[(i + time) % EXECS]));
            ran(ADD, 3, 40);
        }
    CHECK(cudaDeviceSynchronize());
    unsigned long long total;
    CHECK(cudaMemcpy(&total, sum, sizeof(total), cudaMemcpyDeviceToHost));
    printf("at once: %llu\n", total);
    for (int i = 0; i < EXECS; i++) {
        CHECK(cudaGraphExecDestroy(execs[i]));
        CHECK(cudaStreamDestroy(streams[i]));
    }
    CHECK(cudaGraphDestroy(graph));
}

static void not_instrumented()
{
    cudaGraph_t graph;
    cudaGraphNode_t node;
    void *list[] = { &sealed_sum };
    cudaKernelNodeParams params = {};
    params.func = (void *)sealed;
    params.gridDim = dim3(2);
    params.blockDim = dim3(THREADS);
    params.kernelParams = list;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &params));
    cudaGraphExec_t exec = instantiate(graph);
    launch(exec, 3);
    ran(SEALED, 3, 2);
    CHECK(cudaStreamSynchronize(stream));
    unsigned total;
    CHECK(cudaMemcpy(&total, sealed_sum, sizeof(total), cudaMemcpyDeviceToHost));
    printf("a kernel that cannot be instrumented: %u\n", total);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

// The driver's own functions: a kernel and a function in its place, parameters in one buffer.
static void by_driver()
{
    cudaKernel_t kernel;
    cudaFunction_t function;
    CHECK(cudaGetKernel(&kernel, (const void *)grow));
    CHECK(cudaGetFuncBySymbol(&function, (const void *)grow));
    CUgraph graph;
    CUgraphNode by_function, by_kernel, by_buffer;
    CUgraphExec exec;
    DRIVER(cuGraphCreate, &graph, 0);
    Grow values(y, 13, 1);
    CUDA_KERNEL_NODE_PARAMS params = {}, told;
    params.gridDimX = 2;
    params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
    params.blockDimX = THREADS;
    params.kernelParams = values.list;
    params.func = (CUfunction)function;
    DRIVER(cuGraphAddKernelNode, &by_function, graph, nullptr, 0, &params);
    params.func = nullptr;
    params.kern = (CUkernel)kernel;
    DRIVER(cuGraphAddKernelNode, &by_kernel, graph, &by_function, 1, &params);
    struct {
        unsigned *out;
        unsigned factor, term;
    } buffer = { y, 3, 3 };
    size_t size = sizeof(buffer);
    void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END };
    params.func = (CUfunction)function;
    params.kern = nullptr;
    params.kernelParams = nullptr;
    params.extra = extra;
    DRIVER(cuGraphAddKernelNode, &by_buffer, graph, &by_kernel, 1, &params);
    for (CUgraphNode node : { by_function, by_kernel, by_buffer }) {
        DRIVER(cuGraphKernelNodeGetParams, node, &told);
        // Which of both is told is the driver's choice.
        printf("the driver tells: its kernel %d, a list %d\n",
               told.func == (CUfunction)function || told.kern == (CUkernel)kernel, told.kernelParams != nullptr);
    }
    DRIVER(cuGraphInstantiate, &exec, graph, 0);
    for (int i = 0; i < 2; i++)
        DRIVER(cuGraphLaunch, exec, stream);
    ran(GROW, 6, 2);
    show("by the driver's functions");
    DRIVER(cuGraphExecDestroy, exec);
    DRIVER(cuGraphDestroy, graph);
}

int main()
{
    // The soft GPU runs streams at once only if it is told to. A GPU does not know the word.
    setenv("WARPBPF_SOFT_ASYNC", "1", 0);
    CHECK(cudaMalloc(&x, MOST * 4));
    CHECK(cudaMalloc(&y, MOST * 4));
    CHECK(cudaMalloc(&sum, 8));
    CHECK(cudaMalloc(&sealed_sum, 4));
    CHECK(cudaMemset(x, 1, MOST * 4));
    CHECK(cudaMemset(y, 2, MOST * 4));
    CHECK(cudaMemset(sum, 0, 8));
    CHECK(cudaMemset(sealed_sum, 0, 4));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());
    by_hand();
    by_capture();
    by_driver();
    at_once();
    not_instrumented();
    for (int kernel = GROW; kernel <= SEALED; kernel++)
        printf("ran %s: %u launches, %u blocks\n", names[kernel], launches[kernel], blocks[kernel]);
    return 0;
}

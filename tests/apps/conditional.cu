// A graph with a loop: the body of a conditional node runs as often as a kernel in it says. In the body are kernels added by hand, one beside the other,
// another graph, a captured kernel, and a second conditional node, whose body runs each second time. Every thread adds one to its kernel's sum; prints
// what was run of each kernel.
// usage: conditional ROUNDS LAUNCHES
#include "check.h"

enum { BESIDE, WORK, INNER, CAPTURED, ODD, KERNELS };

extern const void *const decider;

#define KERNEL(name, which) \
    __global__ void name(unsigned *sums) { atomicAdd(sums + which, 1); }

KERNEL(beside, BESIDE)
KERNEL(work, WORK)
KERNEL(inner, INNER)
KERNEL(captured, CAPTURED)
KERNEL(odd, ODD)

static cudaGraphNode_t add(cudaGraph_t graph, const void *kernel, unsigned blocks, unsigned threads, void **arguments, cudaGraphNode_t behind)
{
    cudaKernelNodeParams params = {};
    cudaGraphNode_t node;

    params.func = (void *)kernel;
    params.gridDim = dim3(blocks);
    params.blockDim = dim3(threads);
    params.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&node, graph, &behind, behind != nullptr, &params));
    return node;
}

// A conditional node behind another one; its body is told.
static cudaGraphNode_t condition(cudaGraph_t graph, cudaGraphConditionalHandle handle, cudaGraphConditionalNodeType type, cudaGraphNode_t behind,
                                 cudaGraph_t *body)
{
    cudaGraphNodeParams params = {};
    cudaGraphNode_t node;

    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = 1;
    CHECK(cudaGraphAddNode(&node, graph, &behind, nullptr, 1, &params));
    *body = params.conditional.phGraph_out[0];
    return node;
}

int main(int argc, char **argv)
{
    unsigned rounds = argc > 1 ? atoi(argv[1]) : 7, launches = argc > 2 ? atoi(argv[2]) : 4;
    unsigned *sums, *left, told[KERNELS];
    cudaGraphConditionalHandle again, is_odd;
    cudaGraph_t graph, body, child, odd_body;
    cudaGraphExec_t exec;
    cudaStream_t stream;

    CHECK(cudaMalloc(&sums, sizeof(told)));
    CHECK(cudaMalloc(&left, sizeof(*left)));
    CHECK(cudaMemset(sums, 0, sizeof(told)));
    CHECK(cudaStreamCreate(&stream));

    void *counted[] = {&sums};
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t first = add(graph, (const void *)beside, 4, 64, counted, nullptr);
    CHECK(cudaGraphConditionalHandleCreate(&again, graph, 1, cudaGraphCondAssignDefault));
    condition(graph, again, cudaGraphCondTypeWhile, first, &body);

    // Three beside each other, and behind one of them what decides.
    add(body, (const void *)work, 3, 64, counted, nullptr);
    cudaGraphNode_t node;
    CHECK(cudaGraphCreate(&child, 0));
    add(child, (const void *)inner, 2, 64, counted, nullptr);
    CHECK(cudaGraphAddChildGraphNode(&node, body, nullptr, 0, child));
    CHECK(cudaStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal));
    captured<<<5, 64, 0, stream>>>(sums);
    cudaGraph_t same;
    CHECK(cudaStreamEndCapture(stream, &same));
    CHECK(cudaGraphConditionalHandleCreate(&is_odd, body, 0, 0));
    void *decided[] = {&again, &is_odd, &left};
    cudaGraphNode_t last = add(body, decider, 1, 1, decided, node);
    condition(body, is_odd, cudaGraphCondTypeIf, last, &odd_body);
    add(odd_body, (const void *)odd, 1, 64, counted, nullptr);

    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (unsigned i = 0; i < launches; i++) {
        CHECK(cudaMemcpyAsync(left, &rounds, sizeof(rounds), cudaMemcpyHostToDevice, stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
    }
    CHECK(cudaMemcpy(told, sums, sizeof(told), cudaMemcpyDeviceToHost));
    const char *names[] = {"beside", "work", "inner", "captured", "odd"};
    for (int i = 0; i < KERNELS; i++)
        printf("ran %s: %u blocks\n", names[i], told[i] / 64);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(child));
    return 0;
}

// As bpftime's example: additions of vectors as nodes of a graph, which is launched some times.
#include "check.h"

constexpr int N = 10;

__global__ void vectorAdd(const float *a, const float *b, float *c)
{
    int i = threadIdx.x;
    if (i < N)
        c[i] = a[i] + b[i];
}

int main(int argc, char **argv)
{
    int times = argc > 1 ? atoi(argv[1]) : 5;
    float a[N], b[N], c[N], *on_device[3];
    for (int i = 0; i < N; i++) {
        a[i] = i;
        b[i] = 2 * i;
    }
    for (float *&each : on_device)
        CHECK(cudaMalloc(&each, sizeof(a)));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t in[2], node, out;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddMemcpyNode1D(&in[0], graph, nullptr, 0, on_device[0], a, sizeof(a), cudaMemcpyHostToDevice));
    CHECK(cudaGraphAddMemcpyNode1D(&in[1], graph, nullptr, 0, on_device[1], b, sizeof(b), cudaMemcpyHostToDevice));
    void *list[] = { &on_device[0], &on_device[1], &on_device[2] };
    cudaKernelNodeParams params = {};
    params.func = (void *)vectorAdd;
    params.gridDim = dim3(1);
    params.blockDim = dim3(N);
    params.kernelParams = list;
    CHECK(cudaGraphAddKernelNode(&node, graph, in, 2, &params));
    CHECK(cudaGraphAddMemcpyNode1D(&out, graph, &node, 1, c, on_device[2], sizeof(c), cudaMemcpyDeviceToHost));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < times; i++) {
        CHECK(cudaGraphLaunch(exec, 0));
        CHECK(cudaDeviceSynchronize());
    }
    printf("C[0]=%g C[1]=%g\n", c[0], c[1]);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    return 0;
}

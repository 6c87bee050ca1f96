// Graphs whose parts run as values on the device say.
#include <cstdio>

__global__ void count(cudaGraphConditionalHandle again, int *left, int *rounds)
{
	(*rounds)++;
	cudaGraphSetConditional(again, --*left > 0);
}
__global__ void choose(cudaGraphConditionalHandle which, unsigned value) { cudaGraphSetConditional(which, value); }
__global__ void add(int *to, int n) { *to += n; }

static int *left, *rounds, *sum;
#define OK(call) do { cudaError_t e = call; if (e) printf("%s: %s\n", #call, cudaGetErrorName(e)); } while (0)

static cudaGraph_t *conditional(cudaGraphNode_t *node, cudaGraph_t graph, cudaGraphConditionalHandle handle, cudaGraphConditionalNodeType type, unsigned size, cudaGraphNode_t *behind)
{
	cudaGraphNodeParams params = {};
	params.type = cudaGraphNodeTypeConditional;
	params.conditional.handle = handle;
	params.conditional.type = type;
	params.conditional.size = size;
	cudaError_t e = cudaGraphAddNode(node, graph, behind, nullptr, behind ? 1 : 0, &params);
	if (e)
		printf("conditional node: %s\n", cudaGetErrorName(e));
	return params.conditional.phGraph_out;
}
static void adds(cudaGraph_t graph, int n)
{
	cudaGraphNode_t node;
	void *args[] = { &sum, &n };
	cudaKernelNodeParams kernel = { (void *)add, 1, 1, 0, args, nullptr };
	OK(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &kernel));
}
static void launch(const char *name, cudaGraphExec_t exec)
{
	int l = 3, r = 0, s = 0;
	cudaMemcpy(left, &l, sizeof l, cudaMemcpyHostToDevice);
	cudaMemcpy(rounds, &r, sizeof r, cudaMemcpyHostToDevice);
	cudaMemcpy(sum, &s, sizeof s, cudaMemcpyHostToDevice);
	OK(cudaGraphLaunch(exec, 0));
	OK(cudaDeviceSynchronize());
	cudaMemcpy(&r, rounds, sizeof r, cudaMemcpyDeviceToHost);
	cudaMemcpy(&s, sum, sizeof s, cudaMemcpyDeviceToHost);
	printf("%s: %d rounds, sum %d\n", name, r, s);
}

int main()
{
	cudaMalloc(&left, sizeof *left);
	cudaMalloc(&rounds, sizeof *rounds);
	cudaMalloc(&sum, sizeof *sum);
	cudaGraph_t graph, copy;
	cudaGraphExec_t exec;
	cudaGraphNode_t node;
	cudaGraphConditionalHandle handle, inner;

	// A loop, with a choice in it.
	OK(cudaGraphCreate(&graph, 0));
	OK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
	cudaGraph_t body = conditional(&node, graph, handle, cudaGraphCondTypeWhile, 1, nullptr)[0];
	void *args[] = { &handle, &left, &rounds };
	cudaKernelNodeParams kernel = { (void *)count, 1, 1, 0, args, nullptr };
	OK(cudaGraphAddKernelNode(&node, body, nullptr, 0, &kernel));
	OK(cudaGraphConditionalHandleCreate(&inner, graph, 0, 0));
	unsigned value = 1;
	void *chosen[] = { &inner, &value };
	cudaKernelNodeParams choice = { (void *)choose, 1, 1, 0, chosen, nullptr };
	OK(cudaGraphAddKernelNode(&node, body, nullptr, 0, &choice));
	cudaGraph_t *two = conditional(&node, body, inner, cudaGraphCondTypeIf, 2, &node);
	adds(two[0], 10);
	adds(two[1], 1);
	OK(cudaGraphInstantiate(&exec, graph, 0));
	launch("loop", exec);
	launch("again", exec);
	OK(cudaGraphClone(&copy, graph));
	OK(cudaGraphDestroy(graph));
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphInstantiate(&exec, copy, 0));
	launch("copy", exec);

	// One of several.
	for (unsigned which = 0; which < 4; which++) {
		OK(cudaGraphCreate(&graph, 0));
		OK(cudaGraphConditionalHandleCreate(&handle, graph, which, cudaGraphCondAssignDefault));
		cudaGraph_t *three = conditional(&node, graph, handle, cudaGraphCondTypeSwitch, 3, nullptr);
		for (int n = 0; n < 3; n++)
			adds(three[n], 1 << n);
		OK(cudaGraphInstantiate(&exec, graph, 0));
		launch("switch", exec);
	}
	enum cudaGraphNodeType type;
	OK(cudaGraphNodeGetType(node, &type));
	printf("type %d\n", type);
	// What is no such node.
	conditional(&node, graph, 0x1234, cudaGraphCondTypeIf, 1, nullptr);
	conditional(&node, graph, handle, cudaGraphCondTypeWhile, 2, nullptr);
	conditional(&node, graph, handle, (cudaGraphConditionalNodeType)7, 1, nullptr);
	return 0;
}

// Separate compilation: a kernel that calls a function and uses variables of another file, and one that launches kernels.
#include <cstdio>

extern __device__ int scale;
__device__ int scaled(int);
static __device__ int offset = 1; // the other file has one of its own

__global__ void child(int *sums, int depth)
{
	atomicAdd(&sums[depth], threadIdx.x + 1);
	if (depth > 0 && threadIdx.x == 0)
		child<<<2, blockDim.x>>>(sums, depth - 1);
}
__global__ void parent(int *values, int *sums)
{
	values[threadIdx.x] = scaled(threadIdx.x) + scale + offset;
	if (threadIdx.x < 2)
		child<<<1, 32, threadIdx.x * 16>>>(sums, 2);
	if (threadIdx.x == 0)
		child<<<1, 5000>>>(sums, 0); // too many threads
}
int main()
{
	int *values, *sums, v[64], s[3];
	cudaMalloc(&values, sizeof v);
	cudaMalloc(&sums, sizeof s);
	cudaMemset(sums, 0, sizeof s);
	int two = 2;
	cudaError_t variable = cudaMemcpyToSymbol(scale, &two, sizeof two);
	parent<<<1, 64>>>(values, sums);
	cudaError_t launched = cudaGetLastError();
	cudaMemcpy(v, values, sizeof v, cudaMemcpyDeviceToHost);
	cudaError_t copied = cudaMemcpy(s, sums, sizeof s, cudaMemcpyDeviceToHost);
	printf("%d %d %d: %d %d, %d %d %d\n", variable, launched, copied, v[0], v[63], s[2], s[1], s[0]);
	return 0;
}

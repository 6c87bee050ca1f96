// A file as those of large libraries: hundreds of kernels out of a few templates.

#include <utility>

template <int KIND, int WIDTH>
__global__ void many(float *out, const float *in, unsigned n)
{
	__shared__ float rows[256];
	unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
	if (at >= n)
		return;
	float sum = 0;
#pragma unroll
	for (int i = 0; i < WIDTH; i++)
		sum += in[at + i * n] * (KIND + i);
	if (KIND % 3 == 0) {
		rows[threadIdx.x] = sum;
		__syncthreads();
		sum += rows[threadIdx.x ^ 1];
	}
	if (KIND % 5 == 0 && sum < 0)
		return;
	if (KIND % 7 == 0)
		for (unsigned i = 0; i < n; i += 32)
			sum = sum * in[i] + KIND;
	out[at] = sum;
}

#ifndef KERNELS
#define KERNELS 300
#endif

template <int... KIND>
void *any(std::integer_sequence<int, KIND...>)
{
	void *all[] = {(void *)many<KIND, 16 + KIND % 48>...};
	return all[0];
}

void *these()
{
	return any(std::make_integer_sequence<int, KERNELS>());
}

// Compiled with full debug information: sections, labels in data, inlined locations, local memory.
__device__ int helper(int x) { int y[8]; for (int i = 0; i < 8; i++) y[i] = x * i; return y[x & 7]; }
__device__ int outer(int x) { return helper(x + 1) * 2; }
__global__ void kernel(int *out) { out[threadIdx.x] = outer(out[threadIdx.x]); }

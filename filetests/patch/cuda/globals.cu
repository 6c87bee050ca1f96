// A kernel and module-scope variables of every kind a slice must reach by address: loads, stores, atomics, an array
// indexed at run time, one written by another kernel, one reached only inside a function that was not inlined.
__device__ int counter;
__device__ int table[64] = {3, 1, 4, 1, 5, 9, 2, 6};
__device__ float scale = 1.0f;
__device__ unsigned long long total;
__device__ int last[2];

__device__ __noinline__ void account(int amount) {
    atomicAdd(&total, (unsigned long long)amount);
}

extern "C" __global__ void prepare(float s) {
    scale = s;
    table[threadIdx.x & 63] += 100;
}

extern "C" __global__ void use_globals(float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(&counter, 1);
    account(table[i & 63]);
    __shared__ int tile[128];
    tile[threadIdx.x & 127] = i;
    out[i] = scale * (float)table[(i + 3) & 63] + (float)tile[threadIdx.x & 127];
    if (i == 0) last[1] = table[5];
}

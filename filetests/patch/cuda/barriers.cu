// Threads that leave before others wait for each other: hardware does not count the gone, so a probe at exit must not
// keep them.

// Linear index in the block, and in the grid.
__device__ int in_block() { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }
__device__ int in_grid() {
    int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    return block * blockDim.x * blockDim.y * blockDim.z + in_block();
}

extern "C" __global__ void early_barrier(int* out, int n) {
    __shared__ int tile[1024];
    int t = in_block();
    int i = in_grid();
    if (i >= n || t % 7 == 3) return;
    tile[t] = i * 3;
    __syncthreads();
    int from = t % 7 == 2 ? t : t + 1 < blockDim.x * blockDim.y * blockDim.z && i + 1 < n ? t + 1 : t;
    out[i] = tile[from] + 1;
}

extern "C" __global__ void early_loop(int* out, int n) {
    int i = in_grid();
    if (i >= n) return;
    int sum = i;
    for (int step = 0; step < 3; ++step) {
        if ((i ^ step) % 5 == 4) {
            out[i] = -step;
            return;
        }
        sum += step;
    }
    out[i] = sum;
    __syncthreads();
    out[i] += 1;
}

extern "C" __global__ void loop_exit(int* out, int n) {
    int i = in_grid();
    if (i < n) out[i] = 0;
    for (int k = 0; k < 40; ++k) {
        if (k == i % 37 || i >= n) return;
        __syncthreads();
        if (i < n) out[i] += k;
    }
}

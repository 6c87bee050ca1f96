// Threads that leave before others wait for each other: hardware does not count the gone, so a probe at exit must not
// keep them.
extern "C" __global__ void early_barrier(int* out, int n) {
    __shared__ int tile[1024];
    int t = threadIdx.y * blockDim.x + threadIdx.x;
    int i = blockIdx.x * blockDim.x * blockDim.y + t;
    if (i >= n || t % 7 == 3) return;
    tile[t] = i * 3;
    __syncthreads();
    int from = t % 7 == 2 ? t : t + 1 < blockDim.x * blockDim.y && i + 1 < n ? t + 1 : t;
    out[i] = tile[from] + 1;
}

extern "C" __global__ void early_shuffle(int* out, int n) {
    int i = (blockIdx.x * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int mask = __activemask();
    int sum = i;
    for (int step = 0; step < 3; ++step) {
        if ((i ^ step) % 5 == 4) {
            out[i] = -step;
            return;
        }
        sum += step;
    }
    out[i] = sum + __popc(mask) * 0;
    __syncthreads();
    out[i] += 1;
}

extern "C" __global__ void loop_exit(int* out, int n) {
    int i = (blockIdx.x * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 0;
    for (int k = 0; k < 40; ++k) {
        if (k == i % 37 || i >= n) return;
        __syncthreads();
        if (i < n) out[i] += k;
    }
}

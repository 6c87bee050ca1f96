// Every way out: early returns, a predicated exit, exit inside a function that was not inlined, falling to the end.
__device__ __noinline__ int leave(int i) {
    if (i % 5 == 0) asm volatile("exit;");
    return i * 2;
}

extern "C" __global__ void early(int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (i % 3 == 0) {
        out[i] = 1;
        return;
    }
    for (int k = 0; k < i; ++k) {
        if (k * k > i) {
            out[i] = k;
            return;
        }
    }
    out[i] = -1;
}

extern "C" __global__ void predicated(int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    asm volatile("{ .reg .pred p; setp.ge.s32 p, %0, %1; @p exit; }" ::"r"(i), "r"(n));
    out[i] = i;
    asm volatile("{ .reg .pred p; setp.eq.s32 p, %0, 7; @!p ret; }" ::"r"(i));
    out[i] = 70;
}

extern "C" __global__ void in_function(int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = leave(i);
}

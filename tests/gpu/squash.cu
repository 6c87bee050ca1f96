// The two kernels of torch_loop.py in a library, as an extension of PyTorch's has its own: machine code and its PTX in a file that is mapped, so that programs
// can be put in while they are launched. Functions for ctypes launch them into the caller's stream and give the runtime's error.
#include <cuda_runtime.h>

static const unsigned BLOCK = 128;

extern "C" __global__ void warpbpf_squash(float *to, const float *from, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        to[i] = from[i] / (1.0f + fabsf(from[i]));
}

extern "C" __global__ void warpbpf_slope(float *to, const float *grad, const float *from, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float d = 1.0f + fabsf(from[i]);
        to[i] = grad[i] / (d * d);
    }
}

extern "C" int launch_warpbpf_squash(float *to, const float *from, unsigned n, cudaStream_t stream)
{
    warpbpf_squash<<<(n + BLOCK - 1) / BLOCK, BLOCK, 0, stream>>>(to, from, n);
    return cudaGetLastError();
}

extern "C" int launch_warpbpf_slope(float *to, const float *grad, const float *from, unsigned n, cudaStream_t stream)
{
    warpbpf_slope<<<(n + BLOCK - 1) / BLOCK, BLOCK, 0, stream>>>(to, grad, from, n);
    return cudaGetLastError();
}

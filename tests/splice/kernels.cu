// Kernels of which the GPU test has only machine code. Each thread writes values that nobody can guess where its registers are
// changed behind its back. All take (out, in, n): n is the number of threads.

typedef unsigned long long u64;

static __device__ unsigned mix(unsigned x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

// No stack, one early way out.
extern "C" __global__ void vecadd(unsigned *out, const unsigned *in, u64 n)
{
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (i >= n - 7)
        return;
    out[i] = in[i] + in[i + 1];
}

// Lanes that are together from the first instruction on and have to stay so: the compiler has nobody wait for anybody, and keeps sums of the warp in registers that it
// has once.
extern "C" __global__ void together(unsigned *out, const unsigned *in, u64 n)
{
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    unsigned x = threadIdx.x * 0x9e3779b1u, sum = blockIdx.x;
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    x ^= __shfl_down_sync(0xffffffffu, x, 3);
#pragma unroll 1
    for (unsigned k = 0; k < 6; k++) {
        sum = sum * 5 + k;
        x += __shfl_sync(0xffffffffu, mix(x), (sum + k) & 31);
        x += __popc(__ballot_sync(0xffffffffu, x & 1)) + sum;
    }
    out[i] = x ^ in[i];
}

// Many registers, all stored right before the end: a probe that comes too early changes what is stored.
extern "C" __global__ void __launch_bounds__(256) registers(unsigned *out, const unsigned *in, u64 n)
{
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    unsigned value[48];
#pragma unroll
    for (int k = 0; k < 48; k++)
        value[k] = in[(i + 5 * k) % n];
#pragma unroll
    for (int round = 0; round < 4; round++)
#pragma unroll
        for (int k = 0; k < 48; k++)
            value[k] = value[k] * 0x9e3779b1u + value[(k + 7 + round) % 48];
#pragma unroll
    for (int k = 0; k < 48; k++)
        out[i + n * k] = value[k];
}

// Ways out under several conditions, in a loop whose other threads go on and meet again.
extern "C" __global__ void exits(unsigned *out, const unsigned *in, u64 n)
{
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    unsigned x = in[i];
    if (x % 13 == 0 && i % 3 == 1)
        return;
    for (int round = 0; round < 20; round++) {
        x = mix(x + round);
        if (x % 11 == 0) {
            out[i] = x + round;
            return;
        }
        if (x % 7 == 3) {
            x = mix(x ^ 77);
            __syncwarp(__activemask());
        }
    }
    out[i] = x;
}

// An array that is indexed, so that the kernel has a stack frame.
extern "C" __global__ void stack(unsigned *out, const unsigned *in, u64 n)
{
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    unsigned own[40];
    for (int k = 0; k < 40; k++)
        own[k] = mix(in[i] + k);
    unsigned x = in[i];
    for (int k = 0; k < 100; k++)
        x = own[x % 40] += x + k;
    if (x & 1) {
        out[i] = own[x % 40];
        return;
    }
    out[i] = x;
}

static __device__ __noinline__ unsigned ends(unsigned x, unsigned *out)
{
    if (x % 5 == 2) {
        *out = x;
        asm volatile("exit;");
    }
    return mix(x);
}

// Threads that end in a function, while others wait at barriers.
extern "C" __global__ void calls(unsigned *out, const unsigned *in, u64 n)
{
    __shared__ unsigned sums[256];
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    sums[threadIdx.x] = in[i];
    __syncthreads();
    unsigned x = ends(sums[(threadIdx.x + 33) % blockDim.x], out + i);
    __syncthreads();
    out[i] = ends(x + 1, out + i) + sums[threadIdx.x ^ 1];
}

// A jump table.
extern "C" __global__ void table(unsigned *out, const unsigned *in, u64 n)
{
    u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    unsigned x = in[i];
    switch (x % 9) {
    case 0: x = mix(x); break;
    case 1: out[i] = x * 3; return;
    case 2: x = __brev(x); out[i + n] = x; break;
    case 3: x = x / 7 + 1; break;
    case 4: x ^= in[(i + 1) % n]; out[i] = x; return;
    case 5: x = __clz(x) * 17; break;
    case 6: out[i + n] = x; x = x % 1001; break;
    case 7: return;
    default: x = ~x;
    }
    out[i] = x;
}

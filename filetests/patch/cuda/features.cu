// What real kernels are made of: launch bounds, branch tables, recursion, asserts and traps, dynamic shared memory,
// large and const parameters, texture objects, asynchronous copies, tensor cores, cooperative groups, managed memory.
#include <cassert>
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>

namespace cg = cooperative_groups;

__managed__ int managed_total;
extern __shared__ float dynamic[];

struct Big {
    float weights[64];
    const float* input;
    int stride;
};

__device__ __noinline__ int ackermann(int m, int n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

extern "C" __global__ void __launch_bounds__(256, 2) bounded(const Big big, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(n > 0);
    if (i >= n) return;
    out[i] = big.weights[i & 63] * big.input[i * big.stride];
    atomicAdd(&managed_total, 1);
}

extern "C" __global__ void table(int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) __trap();
    switch (out[i] & 15) {
        case 0: out[i] = 10; return;
        case 1: out[i] = 1 + i; break;
        case 2: out[i] = i * i; break;
        case 3: out[i] = i ^ 77; return;
        case 4: out[i] = ackermann(1, i & 3); break;
        case 5: out[i] = __popc(i); break;
        case 6: out[i] = __brev(i); break;
        case 7: return;
        case 8: out[i] = i / 3; break;
        case 9: out[i] = i % 7; break;
        default: out[i] = -1;
    }
    out[i] += 1;
}

extern "C" __global__ void staged(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) __pipeline_memcpy_async(&dynamic[threadIdx.x], &in[i], 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    if (i < n) out[i] = dynamic[(threadIdx.x + 1) % blockDim.x];
}

extern "C" __global__ void textured(cudaTextureObject_t texture, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex1Dfetch<float>(texture, i);
}

extern "C" __global__ void tensor(const half* a, const half* b, float* c) {
    using namespace nvcuda;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}

extern "C" __global__ void cooperative(int* out, int n) {
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    int i = block.group_index().x * block.size() + block.thread_rank();
    int sum = i;
    for (int step = 16; step > 0; step /= 2) sum += warp.shfl_xor(sum, step);
    block.sync();
    if (i < n) out[i] = sum;
}

// Hopper: asynchronous copies, barriers in memory, clusters, matrix instructions.
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;
__global__ void __cluster_dims__(2, 1, 1) bulk(const float *in, float *out) {
    __shared__ alignas(128) float tile[1024];
    __shared__ unsigned long long bar;
    unsigned smem = (unsigned)__cvta_generic_to_shared(tile), mbar = (unsigned)__cvta_generic_to_shared(&bar);
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(mbar));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 4096, [%2];" ::"r"(smem),
                 "l"(in), "r"(mbar) : "memory");
    asm volatile("{.reg .pred p;\nWAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\n@!p bra.uni WAIT;\n}" ::"r"(mbar));
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2}], [%3];"
                 ::"r"(smem), "l"(in), "r"(0), "r"(mbar) : "memory");
    asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff;}");
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;");
    out[threadIdx.x] = tile[threadIdx.x];
}
__global__ void matrix(const half *a, const half *b, float *c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}

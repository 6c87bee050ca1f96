//! Products of matrices as kernels for tensor cores are written: copies in stages, swizzled tiles,
//! inline PTX.

use crate::common::{
    self,
    matrix::{Ty, packed, product, random, upload},
};
use crate::common::{Params, Rig, nvcc, nvcc_for};

/// Runs `gemm(a, b, c, n)` on n×n matrices under several schedules. `b` is given column by column
/// if `transposed`.
fn check(ptx: &str, n: usize, [grid, block]: [u32; 2], transposed: bool) {
    let (a, b) = (random(Ty::F16, n * n, 21), random(Ty::F16, n * n, 22));
    let by_row: Vec<i64> = if transposed {
        (0..n * n).map(|i| b[i % n * n + i / n]).collect()
    } else {
        b.clone()
    };
    let expected = product([n, n, n], &a, &by_row, &vec![0; n * n], false);
    for seed in [None, Some(1), Some(2)] {
        let config = warpbpf_softgpu::Config {
            seed,
            ..common::config()
        };
        let mut rig = Rig::with(config, ptx);
        let out = rig.zeroes(n * n);
        let params = Params::default()
            .u64(upload(&rig, Ty::F32, &packed(Ty::F16, &a)))
            .u64(upload(&rig, Ty::F32, &packed(Ty::F16, &b)))
            .u64(out)
            .u32(n as u32);
        rig.run("gemm", grid, block, &params);
        let found: Vec<i64> = rig
            .read_f32(out, n * n)
            .into_iter()
            .map(|x| x as i64)
            .collect();
        assert!(found == expected, "seed {seed:?}");
    }
}

#[test]
fn mma_with_ldmatrix_and_asynchronous_copies() {
    let ptx = nvcc(
        "gemm_mma",
        r#"#include <cuda_fp16.h>
           #include <cuda_pipeline.h>
           // A block of 4 warps makes a 64x64 tile, each warp 16 rows of it.
           extern "C" __global__ void gemm(const __half* a, const __half* b, float* c, int n) {
             __shared__ __align__(16) __half sa[2][64][24], sb[2][16][72];
             int tiles = n / 64, row = blockIdx.x / tiles * 64, col = blockIdx.x % tiles * 64;
             int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
             auto fetch = [&](int stage, int k) {
               int i = threadIdx.x;
               __pipeline_memcpy_async(&sa[stage][i / 2][i % 2 * 8], &a[(row + i / 2) * n + k + i % 2 * 8], 16);
               __pipeline_memcpy_async(&sb[stage][i / 8][i % 8 * 8], &b[(k + i / 8) * n + col + i % 8 * 8], 16);
               __pipeline_commit();
             };
             float acc[8][4] = {};
             fetch(0, 0);
             for (int k = 0; k < n; k += 16) {
               int stage = k / 16 % 2;
               if (k + 16 < n) { fetch(stage ^ 1, k + 16); __pipeline_wait_prior(1); } else __pipeline_wait_prior(0);
               __syncthreads();
               unsigned fa[4], fb[4];
               unsigned pa = (unsigned)__cvta_generic_to_shared(&sa[stage][warp * 16 + lane % 16][lane / 16 * 8]);
               asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3]) : "r"(pa));
               for (int j = 0; j < 4; j++) {
                 unsigned pb = (unsigned)__cvta_generic_to_shared(&sb[stage][lane % 16][j * 16 + lane / 16 * 8]);
                 asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(fb[0]), "=r"(fb[1]), "=r"(fb[2]), "=r"(fb[3]) : "r"(pb));
                 for (int h = 0; h < 2; h++) {
                   float* d = acc[2 * j + h];
                   asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[2 * h]), "r"(fb[2 * h + 1]));
                 }
               }
               __syncthreads();
             }
             for (int t = 0; t < 8; t++)
               for (int i = 0; i < 4; i++)
                 c[(row + warp * 16 + lane / 4 + i / 2 * 8) * n + col + t * 8 + lane % 4 * 2 + i % 2] = acc[t][i];
           }"#,
    );
    check(&ptx, 128, [4, 128], false);
}

#[test]
fn warpgroups_with_swizzled_tiles() {
    let ptx = nvcc_for(
        "sm_90a",
        "gemm_wgmma",
        r#"#include <cuda_fp16.h>
           // Rows of 64 elements fill the 128 bytes of a line; 16-byte units are exchanged by the
           // line's number.
           __device__ int swizzled(int row, int unit) { return row * 128 + ((unit ^ row % 8) * 16); }
           __device__ unsigned long long descriptor(const void* tile) {
             unsigned long long at = (unsigned)__cvta_generic_to_shared(tile);
             return (at & 0x3ffff) >> 4 | 1ull << 16 | (1024ull >> 4) << 32 | 1ull << 62;
           }
           // Two warpgroups make a 128x32 tile; b comes column by column, so both operands are
           // K-major.
           extern "C" __global__ void __launch_bounds__(256) gemm(const __half* a, const __half* b, float* c, int n) {
             __shared__ __align__(1024) char sa[128 * 128], sb[32 * 128];
             int tiles = n / 32, row = blockIdx.x / tiles * 128, col = blockIdx.x % tiles * 32;
             int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
             float d[16] = {};
             for (int k = 0; k < n; k += 64) {
               for (int i = threadIdx.x; i < 128 * 8; i += 256)
                 *(uint4*)(sa + swizzled(i / 8, i % 8)) = *(const uint4*)&a[(row + i / 8) * n + k + i % 8 * 8];
               *(uint4*)(sb + swizzled(threadIdx.x / 8, threadIdx.x % 8)) =
                 *(const uint4*)&b[(col + threadIdx.x / 8) * n + k + threadIdx.x % 8 * 8];
               asm volatile("fence.proxy.async;" ::: "memory");
               __syncthreads();
               asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
               for (int step = 0; step < 4; step++) {
                 unsigned long long da = descriptor(sa + group * 64 * 128 + step * 32), db = descriptor(sb + step * 32);
                 asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0;\n"
                   "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, p, 1, 1, 0, 0; }"
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                     "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
                   : "l"(da), "l"(db), "r"(k + step));
               }
               asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
               __syncthreads();
             }
             for (int i = 0; i < 16; i++)
               c[(row + group * 64 + warp * 16 + lane / 4 + i / 2 % 2 * 8) * n + col + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
           }"#,
    );
    check(&ptx, 128, [4, 256], true);
}

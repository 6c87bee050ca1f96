//! Kernels as nvcc makes them from ordinary CUDA C++, compared with what the host computes.

use crate::common::{self, Params, Rig, nvcc};

#[test]
fn vector_add() {
    let ptx = nvcc(
        "vector_add",
        r#"__global__ void add(const float* a, const float* b, float* c, int n) {
             int i = blockIdx.x * blockDim.x + threadIdx.x;
             if (i < n) c[i] = a[i] + b[i];
           }"#,
    );
    let mut rig = Rig::new(&ptx);
    let n = 10_000;
    let a: Vec<f32> = (0..n).map(|i| i as f32 * 0.5).collect();
    let b: Vec<f32> = (0..n).map(|i| 1e6 / (i as f32 + 1.0)).collect();
    let (da, db, dc) = (rig.f32s(&a), rig.f32s(&b), rig.zeroes(n));
    rig.run(
        "add",
        40,
        256,
        &Params::default().u64(da).u64(db).u64(dc).u32(n as u32),
    );
    let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_eq!(rig.read_f32(dc, n), expected);
}

#[test]
fn tiled_matmul() {
    let ptx = nvcc(
        "matmul",
        r#"#define T 16
           __global__ void mul(const float* a, const float* b, float* c, int n) {
             __shared__ float sa[T][T], sb[T][T];
             int row = blockIdx.x / (n / T) * T + threadIdx.x / T, col = blockIdx.x % (n / T) * T + threadIdx.x % T;
             float sum = 0;
             for (int k = 0; k < n; k += T) {
               sa[threadIdx.x / T][threadIdx.x % T] = a[row * n + k + threadIdx.x % T];
               sb[threadIdx.x / T][threadIdx.x % T] = b[(k + threadIdx.x / T) * n + col];
               __syncthreads();
               for (int j = 0; j < T; j++) sum += sa[threadIdx.x / T][j] * sb[j][threadIdx.x % T];
               __syncthreads();
             }
             c[row * n + col] = sum;
           }"#,
    );
    let mut rig = Rig::new(&ptx);
    let n = 64usize;
    let a: Vec<f32> = (0..n * n).map(|i| (i % 17) as f32 - 8.0).collect();
    let b: Vec<f32> = (0..n * n).map(|i| (i % 13) as f32 * 0.25).collect();
    let (da, db, dc) = (rig.f32s(&a), rig.f32s(&b), rig.zeroes(n * n));
    rig.run(
        "mul",
        (n / 16 * n / 16) as u32,
        256,
        &Params::default().u64(da).u64(db).u64(dc).u32(n as u32),
    );
    let expected: Vec<f32> = (0..n * n)
        .map(|i| {
            (0..n).fold(0f32, |sum, k| {
                a[i / n * n + k].mul_add(b[k * n + i % n], sum)
            })
        })
        .collect();
    assert_eq!(rig.read_f32(dc, n * n), expected);
    let info = rig
        .module
        .kernel_info(rig.module.kernels().next().expect("one"))
        .expect("there")
        .expect("decodes");
    assert_eq!(info.static_shared, 2048);
    assert_eq!(
        info.params.iter().map(|p| p.offset).collect::<Vec<_>>(),
        [0, 8, 16, 24]
    );
    assert_eq!((info.ptx_version, info.target.as_str()), ((9, 0), "sm_90"));
    assert!((16..64).contains(&info.registers), "{}", info.registers);
}

const REDUCTION: &str = r#"
    __global__ void total(const unsigned* in, unsigned long long* out, int n) {
      __shared__ unsigned long long partial[32];
      unsigned long long sum = 0;
      for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
      for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(~0u, sum, d);
      if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
      __syncthreads();
      if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0;
        for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(~0u, sum, d);
        if (threadIdx.x == 0) atomicAdd(out, sum);
      }
    }"#;

#[test]
fn reduction_by_shuffles_under_any_schedule() {
    let ptx = nvcc("reduction", REDUCTION);
    let values: Vec<u32> = (0..20_000u32)
        .map(|i| i.wrapping_mul(2_654_435_761))
        .collect();
    let expected: u64 = values.iter().map(|&v| u64::from(v)).sum();
    for seed in [None, Some(1), Some(2), Some(3)] {
        let mut rig = Rig::with(
            warpbpf_softgpu::Config {
                seed,
                ..common::config()
            },
            &ptx,
        );
        let (input, output) = (rig.u32s(&values), rig.zeroes(2));
        rig.run(
            "total",
            7,
            256,
            &Params::default()
                .u64(input)
                .u64(output)
                .u32(values.len() as u32),
        );
        assert_eq!(rig.read_u64(output, 1), [expected], "seed {seed:?}");
    }
}

#[test]
fn histogram_with_shared_atomics_under_any_schedule() {
    let ptx = nvcc(
        "histogram",
        r#"__global__ void hist(const unsigned* in, unsigned* out, int n) {
             __shared__ unsigned bins[64];
             if (threadIdx.x < 64) bins[threadIdx.x] = 0;
             __syncthreads();
             int i = blockIdx.x * blockDim.x + threadIdx.x;
             if (i < n) atomicAdd(&bins[in[i] & 63], 1);
             __syncthreads();
             if (threadIdx.x < 64) atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
           }"#,
    );
    let values: Vec<u32> = (0..5000u32)
        .map(|i| i.wrapping_mul(2_654_435_761) >> 16)
        .collect();
    let mut expected = vec![0u32; 64];
    values.iter().for_each(|v| expected[(v & 63) as usize] += 1);
    for seed in [None, Some(7), Some(8)] {
        let mut rig = Rig::with(
            warpbpf_softgpu::Config {
                seed,
                ..common::config()
            },
            &ptx,
        );
        let (input, output) = (rig.u32s(&values), rig.zeroes(64));
        rig.run(
            "hist",
            40,
            128,
            &Params::default()
                .u64(input)
                .u64(output)
                .u32(values.len() as u32),
        );
        assert_eq!(rig.read_u32(output, 64), expected, "seed {seed:?}");
    }
}

#[test]
fn recursion_function_pointers_and_virtual_calls() {
    let ptx = nvcc(
        "calls",
        r#"struct Base { __device__ virtual int f(int x) const = 0; };
           struct Times : Base { int k; __device__ Times(int k) : k(k) {} __device__ int f(int x) const override { return x * k; } };
           struct Plus : Base { int k; __device__ Plus(int k) : k(k) {} __device__ int f(int x) const override { return x + k; } };
           __device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
           __device__ __noinline__ int sq(int n) { return n * n; }
           __device__ int (*table[2])(int) = {fib, sq};
           struct Big { int a[7]; double d; };
           __device__ __noinline__ Big change(Big b, int i) { b.a[i % 7] += i; b.d *= 2; return b; }
           __global__ void calls(int* out) {
             int i = threadIdx.x;
             Times t(3); Plus p(100);
             const Base* b = i % 3 ? (const Base*)&t : (const Base*)&p;
             Big g; for (int j = 0; j < 7; j++) g.a[j] = j; g.d = 1.5;
             g = change(g, i);
             int sum = 0; for (int j = 0; j < 7; j++) sum += g.a[j];
             out[i] = b->f(i) + 1000 * table[i & 1](i % 12) + 1000000 * (sum - 21 == i && g.d == 3.0);
           }"#,
    );
    fn fib(n: u32) -> u32 {
        if n < 2 { n } else { fib(n - 1) + fib(n - 2) }
    }
    let expected: Vec<u32> = (0..96u32)
        .map(|i| {
            let virtual_call = if i % 3 != 0 { i * 3 } else { i + 100 };
            let pointer = if i & 1 == 0 {
                fib(i % 12)
            } else {
                (i % 12) * (i % 12)
            };
            virtual_call + 1000 * pointer + 1_000_000
        })
        .collect();
    for seed in [None, Some(5)] {
        let mut rig = Rig::with(
            warpbpf_softgpu::Config {
                seed,
                ..common::config()
            },
            &ptx,
        );
        let out = rig.zeroes(96);
        rig.run("calls", 1, 96, &Params::default().u64(out));
        assert_eq!(rig.read_u32(out, 96), expected, "seed {seed:?}");
    }
}

#[test]
fn printf_and_malloc() {
    let ptx = nvcc(
        "printf",
        r#"#include <cstdio>
           __global__ void say(int n) {
             if (threadIdx.x < 2)
               printf("%d of %u: %5.2f|%-4s|%c %llx %s%%\n", threadIdx.x, n, 1.5 * threadIdx.x, "ab", 'x',
                      0x123456789abcdefull + blockIdx.x, "done");
             int* p = (int*)malloc(8); p[1] = 7; if (p[1] == 7 && !threadIdx.x) printf("ok\n"); free(p);
           }"#,
    );
    let mut rig = Rig::new(&ptx);
    rig.run("say", 2, 3, &Params::default().u32(9));
    let block = |b: u64| {
        let hex = 0x0123_4567_89ab_cdefu64 + b;
        format!("0 of 9:  0.00|ab  |x {hex:x} done%\n1 of 9:  1.50|ab  |x {hex:x} done%\nok\n")
    };
    assert_eq!(rig.printed, block(0) + &block(1));
    assert_eq!(rig.gpu.device_heap(), [] as [u64; 0]);
}

#[test]
fn double_math_matches_the_host() {
    let ptx = nvcc(
        "doubles",
        r#"__global__ void math(const double* x, double* out, float* f, int n) {
             int i = threadIdx.x;
             out[i] = sqrt(x[i]) / (x[i] + 1.0);
             out[n + i] = fma(x[i], 3.0, -1.0);
             out[2 * n + i] = sin(x[i]);
             out[3 * n + i] = exp(x[i] * 0.125);
             out[4 * n + i] = floor(x[i]) + (double)(int)x[i] + (double)(long long)(x[i] * 1e6);
             f[i] = (float)x[i] / 3.0f;
             f[n + i] = sinf((float)x[i] * 100000.0f);
             f[2 * n + i] = powf((float)x[i], 2.5f);
           }"#,
    );
    let mut rig = Rig::new(&ptx);
    let n = 64;
    let x: Vec<f64> = (0..n).map(|i| i as f64 * 0.37 + 0.01).collect();
    let (dx, out, f) = (rig.f64s(&x), rig.f64s(&vec![0.0; n * 5]), rig.zeroes(n * 3));
    rig.run(
        "math",
        1,
        n as u32,
        &Params::default().u64(dx).u64(out).u64(f).u32(n as u32),
    );
    let (out, f) = (rig.read_f64(out, n * 5), rig.read_f32(f, n * 3));
    let ulps = |a: f64, b: f64| (a.to_bits() as i64 - b.to_bits() as i64).abs();
    for (i, &x) in x.iter().enumerate() {
        assert_eq!(out[i], x.sqrt() / (x + 1.0));
        assert_eq!(out[n + i], x.mul_add(3.0, -1.0));
        assert!(
            ulps(out[2 * n + i], x.sin()) <= 2,
            "sin({x}): {} {}",
            out[2 * n + i],
            x.sin()
        );
        assert!(ulps(out[3 * n + i], (x * 0.125).exp()) <= 2, "exp");
        assert_eq!(out[4 * n + i], x.floor() + x.trunc() + (x * 1e6).trunc());
        assert_eq!(f[i], x as f32 / 3.0);
        let reduced = f64::from(x as f32 * 100_000.0).sin();
        assert!(
            (f64::from(f[n + i]) - reduced).abs() < 1e-6,
            "sinf, large argument: {} {reduced}",
            f[n + i]
        );
        let power = f64::from(x as f32).powf(2.5);
        assert!(
            (f64::from(f[2 * n + i]) - power).abs() <= power * 1e-6,
            "powf: {} {power}",
            f[2 * n + i]
        );
    }
}

#[test]
fn halves_bytes_and_switches() {
    let ptx = nvcc(
        "mixed",
        r#"#include <cuda_fp16.h>
           __constant__ int weights[4] = {10, 20, 30, 40};
           __device__ unsigned char bytes[8] = {1, 2, 3, 250};
           __global__ void mixed(int* out, __half* h, signed char* c, int n) {
             int i = threadIdx.x, r = 0;
             switch (i % 9) {
               case 0: r = 3; break; case 1: r = i * 9; break; case 2: r = i ^ 9; break; case 3: r = -i; break;
               case 4: r = i / 3; break; case 5: r = i % 7; break; case 6: r = i << 3; break; case 7: r = 77;
             }
             h[i] = __hmul(h[i], __float2half(2.0f));
             c[i] = c[i] - 100;
             out[i] = r + weights[i & 3] + bytes[i & 7] * 1000 + c[i] * 100000;
             out[n + i] = __popc(i) + __clz(i) * 100 + __ffs(i) * 10000 + __brev(i) % 7;
             out[2 * n + i] = __match_any_sync(~0u, i & 3) ^ __ballot_sync(~0u, i & 1) ^ __reduce_add_sync(~0u, i);
             out[3 * n + i] = __syncthreads_count(i & 1) + 1000 * __syncthreads_or(i == 5) + 10000 * __syncthreads_and(i >= 0);
             uint4 v = ((uint4*)out)[n + i]; ((uint4*)out)[n + i] = make_uint4(v.w, v.z, v.y, v.x + i);
           }"#,
    );
    let mut rig = Rig::new(&ptx);
    let n = 64usize;
    let out = rig.zeroes(n * 8);
    let h = rig.gpu.alloc(128).expect("memory");
    let halves: Vec<u8> = (0..64u16)
        .flat_map(|i| {
            half::f16::from_f32(f32::from(i) / 8.0)
                .to_bits()
                .to_le_bytes()
        })
        .collect();
    rig.gpu.write(h, &halves).expect("written");
    let c = rig.gpu.alloc(64).expect("memory");
    rig.gpu
        .write(c, &(0..64u8).collect::<Vec<_>>())
        .expect("written");
    rig.run(
        "mixed",
        1,
        64,
        &Params::default().u64(out).u64(h).u64(c).u32(n as u32),
    );
    let got = rig.read_u32(out, n * 8);
    for i in 0..64i32 {
        let r = match i % 9 {
            0 => 3,
            1 => i * 9,
            2 => i ^ 9,
            3 => -i,
            4 => i / 3,
            5 => i % 7,
            6 => i << 3,
            7 => 77,
            _ => 0,
        };
        let bytes = [1, 2, 3, 250, 0, 0, 0, 0][i as usize & 7];
        let c = i32::from((i as u8).wrapping_sub(100) as i8);
        assert_eq!(
            got[i as usize] as i32,
            r + [10, 20, 30, 40][i as usize & 3] + bytes * 1000 + c * 100_000,
            "{i}"
        );
        let u = i as u32;
        let ffs = if i == 0 { 0 } else { u.trailing_zeros() + 1 };
        let expected =
            u.count_ones() + u.leading_zeros() * 100 + ffs * 10_000 + u.reverse_bits() % 7;
        assert_eq!(got[n + i as usize], expected, "{i}");
        let lane = u & 31;
        let alike = (0..32)
            .filter(|l| l & 3 == lane & 3)
            .fold(0u32, |bits, l| bits | 1 << l);
        let sum: u32 = (u & !31..(u & !31) + 32).sum();
        assert_eq!(got[2 * n + i as usize], alike ^ 0xaaaa_aaaa ^ sum, "{i}");
        assert_eq!(got[3 * n + i as usize], 32 + 1000 + 10_000, "{i}");
        assert_eq!(got[4 * n + 4 * i as usize..][..4], [0, 0, 0, u], "{i}");
    }
    let mut back = vec![0; 128];
    rig.gpu.read(h, &mut back).expect("read");
    for (i, pair) in back.as_chunks::<2>().0.iter().enumerate() {
        assert_eq!(half::f16::from_le_bytes(*pair).to_f32(), i as f32 / 4.0);
    }
}

#[test]
fn dynamic_shared_memory_and_globals_by_name() {
    let ptx = nvcc(
        "dynamic",
        r#"extern __shared__ int dyn[];
           __device__ int scale = 3;
           __managed__ int seen;
           __global__ void turn(int* out) {
             __shared__ int fixed[32];
             int i = threadIdx.x, n = blockDim.x;
             dyn[i] = i * scale; if (i < 32) fixed[i] = 1;
             __syncthreads();
             unsigned bytes; asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
             out[i] = dyn[n - 1 - i] + fixed[i & 31] + bytes * 1000;
             atomicAdd(&seen, 1);
           }"#,
    );
    let mut rig = Rig::new(&ptx);
    let out = rig.zeroes(64);
    let (scale, size) = rig.module.global("scale").expect("scale");
    assert_eq!(size, 4);
    rig.gpu.write(scale, &5u32.to_le_bytes()).expect("written");
    rig.dynamic_shared = 256;
    rig.run("turn", 1, 64, &Params::default().u64(out));
    let expected: Vec<u32> = (0..64).map(|i| (63 - i) * 5 + 1 + 256_000).collect();
    assert_eq!(rig.read_u32(out, 64), expected);
    let (seen, _) = rig.module.global("seen").expect("seen");
    assert_eq!(rig.read_u32(seen, 1), [64]);
    rig.dynamic_shared = 128;
    let trap = rig.trap("turn", 1, 64, &Params::default().u64(out));
    assert_eq!(trap.thread, [32, 0, 0]);
    assert!(
        trap.message
            .ends_with("is out of bounds: the block has 256 bytes from 0x400 on"),
        "{trap}"
    );
}

#[test]
fn cluster_memory_and_async_copies() {
    let ptx = nvcc(
        "cluster",
        r#"#include <cooperative_groups.h>
           #include <cuda_pipeline.h>
           namespace cg = cooperative_groups;
           __global__ void __cluster_dims__(2, 1, 1) swap(const int* in, int* out) {
             __shared__ int mine[32];
             __shared__ alignas(16) int copied[32];
             cg::cluster_group cluster = cg::this_cluster();
             int i = threadIdx.x;
             mine[i] = blockIdx.x * 100 + i;
             __pipeline_memcpy_async(&copied[i], &in[i], 4);
             __pipeline_commit(); __pipeline_wait_prior(0);
             cluster.sync();
             int* other = cluster.map_shared_rank(mine, cluster.block_rank() ^ 1);
             out[blockIdx.x * 32 + i] = other[i] + copied[i];
             cluster.sync();
           }"#,
    );
    let mut rig = Rig::new(&ptx);
    let input = rig.u32s(&(0..32).map(|i| i * 1000).collect::<Vec<_>>());
    let out = rig.zeroes(128);
    rig.run("swap", 4, 32, &Params::default().u64(input).u64(out));
    let expected: Vec<u32> = (0..128)
        .map(|i| ((i / 32) ^ 1) * 100 + i % 32 * 1001)
        .collect();
    assert_eq!(rig.read_u32(out, 128), expected);
}

#[test]
fn grid_wide_spin_barrier() {
    let ptx = nvcc(
        "spin",
        r#"__device__ volatile unsigned arrived;
           __global__ void wait(unsigned* out) {
             out[blockIdx.x] = 1;
             __threadfence();
             if (threadIdx.x == 0) { atomicAdd((unsigned*)&arrived, 1); while (arrived < gridDim.x) {} }
             __syncthreads();
             unsigned sum = 0;
             for (int i = 0; i < gridDim.x; i++) sum += ((volatile unsigned*)out)[i];
             out[gridDim.x + blockIdx.x * blockDim.x + threadIdx.x] = sum;
           }"#,
    );
    for (threads, seed) in [(1, None), (2, None), (2, Some(3))] {
        let mut rig = Rig::with(
            warpbpf_softgpu::Config {
                threads,
                seed,
                ..common::config()
            },
            &ptx,
        );
        let out = rig.zeroes(20 + 20 * 64);
        rig.run("wait", 20, 64, &Params::default().u64(out));
        assert_eq!(
            rig.read_u32(out + 80, 20 * 64),
            vec![20; 20 * 64],
            "{threads} threads, seed {seed:?}"
        );
    }
}

#[test]
fn cooperative_groups() {
    let ptx = nvcc(
        "groups",
        r#"#include <cooperative_groups.h>
           #include <cooperative_groups/reduce.h>
           #include <cooperative_groups/scan.h>
           namespace cg = cooperative_groups;
           __global__ void groups(int* out, int* blocks) {
             auto block = cg::this_thread_block();
             auto warp = cg::tiled_partition<32>(block);
             auto four = cg::tiled_partition<4>(block);
             int i = block.thread_rank(), r = cg::reduce(warp, i, cg::plus<int>()) + cg::reduce(four, i, cg::greater<int>());
             r += 1000 * cg::exclusive_scan(four, 1) + 10000 * four.shfl_xor(four.thread_rank(), 1);
             if (i & 1) { auto odd = cg::coalesced_threads(); r += 100000 * odd.size() * (odd.shfl(i, 0) == (i & 32) + 1); }
             out[blockIdx.x * blockDim.x + i] = r;
             auto grid = cg::this_grid();
             if (i == 0) blocks[blockIdx.x] = blockIdx.x + 1;
             grid.sync();
             int sum = 0; for (int b = 0; b < gridDim.x; b++) sum += blocks[b];
             grid.sync();
             if (i == 0) blocks[blockIdx.x] = sum;
           }"#,
    );
    for seed in [None, Some(6)] {
        let mut rig = Rig::with(
            warpbpf_softgpu::Config {
                seed,
                ..common::config()
            },
            &ptx,
        );
        let (out, blocks) = (rig.zeroes(10 * 64), rig.zeroes(10));
        rig.run("groups", 10, 64, &Params::default().u64(out).u64(blocks));
        let expected: Vec<u32> = (0..640)
            .map(|i| {
                let i = i % 64;
                let sum: u32 = (i & 32..(i & 32) + 32).sum();
                let odd = if i & 1 == 1 { 16 * 100_000 } else { 0 };
                sum + (i | 3) + 1000 * (i & 3) + 10_000 * ((i & 3) ^ 1) + odd
            })
            .collect();
        assert_eq!(rig.read_u32(blocks, 10), [55; 10], "seed {seed:?}");
        // The size of a coalesced group is up to the schedule.
        if seed.is_none() {
            assert_eq!(rig.read_u32(out, 640), expected);
        }
    }
}

#[test]
fn the_math_library() {
    /// Name, double precision, reference.
    type Case = (&'static str, fn(f64) -> f64);
    let cases: [Case; 22] = [
        ("sin", f64::sin),
        ("cos", f64::cos),
        ("tan", f64::tan),
        ("asin", |x| (x / 10.0).asin()),
        ("acos", |x| (x / 10.0).acos()),
        ("atan", f64::atan),
        ("sinh", f64::sinh),
        ("cosh", f64::cosh),
        ("tanh", f64::tanh),
        ("asinh", f64::asinh),
        ("exp", f64::exp),
        ("exp2", f64::exp2),
        ("expm1", f64::exp_m1),
        ("log", f64::ln),
        ("log2", f64::log2),
        ("log10", f64::log10),
        ("log1p", f64::ln_1p),
        ("sqrt", f64::sqrt),
        ("cbrt", f64::cbrt),
        ("floor", f64::floor),
        ("rint", f64::round_ties_even),
        ("round", f64::round),
    ];
    let call = |name: &str, suffix: &str, x: &str| match name {
        "asin" | "acos" => format!("{name}{suffix}({x} / 10)"),
        _ => format!("{name}{suffix}({x})"),
    };
    let lines: String = cases
        .iter()
        .enumerate()
        .map(|(i, (name, _))| {
            format!(
                "d[{i} * n + i] = {}; f[{i} * n + i] = {};\n",
                call(name, "", "x[i]"),
                call(name, "f", "(float)x[i]")
            )
        })
        .collect();
    let ptx = nvcc(
        "math",
        &format!(
            "__global__ void math(const double* x, double* d, float* f, int n) {{ int i = threadIdx.x; {lines} }}"
        ),
    );
    let n = 32;
    let mut rig = Rig::new(&ptx);
    let x: Vec<f64> = (0..n).map(|i| f64::from(i as f32 * 0.29 + 0.13)).collect();
    let (dx, d, f) = (
        rig.f64s(&x),
        rig.f64s(&vec![0.0; n * cases.len()]),
        rig.zeroes(n * cases.len()),
    );
    rig.run(
        "math",
        1,
        n as u32,
        &Params::default().u64(dx).u64(d).u64(f).u32(n as u32),
    );
    let (d, f) = (
        rig.read_f64(d, n * cases.len()),
        rig.read_f32(f, n * cases.len()),
    );
    for (case, (name, reference)) in cases.iter().enumerate() {
        for (i, &x) in x.iter().enumerate() {
            let expected = reference(x);
            let near = |found: f64, error: f64| {
                (found - expected).abs() <= expected.abs().max(1e-3) * error
            };
            assert!(
                near(d[case * n + i], 1e-14),
                "{name}({x}): {} {expected}",
                d[case * n + i]
            );
            assert!(
                near(f64::from(f[case * n + i]), 2e-6),
                "{name}f({x}): {} {expected}",
                f[case * n + i]
            );
        }
    }
}

//! What the CUDA C++ libraries are made of: barriers, pipelines, cooperative groups, clusters,
//! stacks that grow.

use crate::common::{self, Params, Rig, header, nvcc};
use warpbpf_softgpu::TrapKind;

#[test]
fn barriers_and_pipelines_of_libcu() {
    let ptx = nvcc(
        "libcu",
        r#"#include <cuda/barrier>
           #include <cuda/pipeline>
           #include <cooperative_groups.h>
           #include <cooperative_groups/memcpy_async.h>
           #pragma nv_diag_suppress static_var_with_dynamic_init
           namespace cg = cooperative_groups;
           __global__ void by_barrier(const int* in, int* out) {
             __shared__ cuda::barrier<cuda::thread_scope_block> bar;
             __shared__ alignas(128) int s[256];
             auto block = cg::this_thread_block();
             if (threadIdx.x == 0) init(&bar, blockDim.x);
             __syncthreads();
             for (int round = 0; round < 3; round++) {
               cuda::memcpy_async(block, s, in + round * 256, cuda::aligned_size_t<16>(1024), bar);
               bar.arrive_and_wait();
               out[round * 256 + threadIdx.x] = s[255 - threadIdx.x] + round;
               auto token = bar.arrive();
               bar.wait(std::move(token));
             }
           }
           __global__ void by_pipeline(const int* in, int* out) {
             constexpr int stages = 2;
             __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
             __shared__ int s[stages][256];
             auto block = cg::this_thread_block();
             auto pipe = cuda::make_pipeline(block, &state);
             for (int fetch = 0, use = 0; use < 3; use++) {
               for (; fetch < 3 && fetch < use + stages; fetch++) {
                 pipe.producer_acquire();
                 cuda::memcpy_async(block, s[fetch % stages], in + fetch * 256, sizeof(int) * 256, pipe);
                 pipe.producer_commit();
               }
               pipe.consumer_wait();
               out[use * 256 + threadIdx.x] = s[use % stages][255 - threadIdx.x] + use;
               pipe.consumer_release();
             }
           }
           __global__ void by_group(const int* in, int* out) {
             __shared__ int s[256];
             auto block = cg::this_thread_block();
             for (int round = 0; round < 3; round++) {
               cg::memcpy_async(block, s, in + round * 256, sizeof(int) * 256);
               cg::wait(block);
               out[round * 256 + threadIdx.x] = s[255 - threadIdx.x] + round;
               block.sync();
             }
           }"#,
    );
    let input: Vec<u32> = (0..768u32)
        .map(|i| i.wrapping_mul(2_654_435_761) >> 8)
        .collect();
    let expected: Vec<u32> = (0..768)
        .map(|i| input[i / 256 * 256 + 255 - i % 256] + i as u32 / 256)
        .collect();
    for seed in [None, Some(1), Some(2)] {
        for kernel in ["by_barrier", "by_pipeline", "by_group"] {
            let config = warpbpf_softgpu::Config {
                seed,
                ..common::config()
            };
            let mut rig = Rig::with(config, &ptx);
            let (from, to) = (rig.u32s(&input), rig.zeroes(768));
            rig.run(kernel, 1, 256, &Params::default().u64(from).u64(to));
            assert_eq!(rig.read_u32(to, 768), expected, "{kernel} seed {seed:?}");
        }
    }
}

#[test]
fn cooperative_groups() {
    let ptx = nvcc(
        "library_groups",
        r#"#include <cooperative_groups.h>
           #include <cooperative_groups/reduce.h>
           #include <cooperative_groups/scan.h>
           namespace cg = cooperative_groups;
           __global__ void groups(int* out) {
             auto warp = cg::tiled_partition<32>(cg::this_thread_block());
             auto four = cg::tiled_partition<4>(warp);
             int i = threadIdx.x;
             int sum = cg::reduce(warp, i, cg::plus<int>());
             int most = cg::reduce(four, i ^ 5, cg::greater<int>());
             int scan = cg::inclusive_scan(warp, 1);
             int label = (int)cg::labeled_partition(warp, i % 3).size();
             int odd = (int)cg::binary_partition(warp, i & 1).size();
             int* o = out + 6 * i;
             o[0] = sum; o[1] = most; o[2] = scan; o[3] = label; o[4] = odd; o[5] = 0;
             if (i % 4 == 1) { auto few = cg::coalesced_threads(); o[5] = few.size() * 100 + few.thread_rank(); }
           }"#,
    );
    let expected: Vec<u32> = (0..32u32)
        .flat_map(|i| {
            let four = (i / 4 * 4..i / 4 * 4 + 4).map(|j| j ^ 5).max().unwrap_or(0);
            let label = (0..32).filter(|j| j % 3 == i % 3).count() as u32;
            let few = if i % 4 == 1 { 800 + i / 4 } else { 0 };
            [496, four, i + 1, label, 16, few]
        })
        .collect();
    for seed in [None, Some(3)] {
        let config = warpbpf_softgpu::Config {
            seed,
            ..common::config()
        };
        let mut rig = Rig::with(config, &ptx);
        let out = rig.zeroes(192);
        rig.run("groups", 1, 32, &Params::default().u64(out));
        let mut found = rig.read_u32(out, 192);
        if seed.is_some() {
            // Which threads are found together is the schedule's choice.
            found
                .iter_mut()
                .skip(5)
                .step_by(6)
                .zip(expected.iter().skip(5).step_by(6))
                .for_each(|(f, e)| *f = *e);
        }
        assert_eq!(found, expected, "seed {seed:?}");
    }
}

/// Each block sends its numbers to the other one, which waits for the bytes at its barrier.
#[test]
fn asynchronous_stores_to_another_block() {
    for (instruction, expected) in [
        (
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r3], %r1, [%r4];",
            [100u32, 0],
        ),
        (
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r3], %r1, [%r4];",
            [107, 7],
        ),
    ] {
        let mut rig = Rig::new(&header(&format!(
            ".visible .entry k(.param .u64 out) {{ .reg .pred %p<2>; .reg .b32 %r<16>; .reg .b64 %d<4>;
             .shared .align 8 .b64 bar; .shared .align 4 .b32 data[32];
             mov.u32 %r0, %tid.x; mov.u32 %r9, %cluster_ctarank; mad.lo.u32 %r1, %r9, 100, %r0;
             mov.u32 %r2, data; mad.lo.u32 %r2, %r0, 4, %r2; mov.u32 %r5, bar; xor.b32 %r6, %r9, 1;
             st.shared.u32 [%r2], 7; setp.eq.u32 %p0, %r0, 0;
             @%p0 mbarrier.init.shared.b64 [%r5], 1; @%p0 mbarrier.arrive.expect_tx.shared.b64 %d1, [%r5], 128;
             barrier.cluster.arrive; barrier.cluster.wait;
             mapa.shared::cluster.u32 %r3, %r2, %r6; mapa.shared::cluster.u32 %r4, %r5, %r6;
             {instruction}
             WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [%r5], 0; @!%p1 bra WAIT;
             ld.shared.u32 %r7, [%r2]; ld.param.u64 %d0, [out]; mad.lo.u32 %r8, %r9, 32, %r0;
             mad.wide.u32 %d0, %r8, 4, %d0; st.global.u32 [%d0], %r7;
             barrier.cluster.arrive; barrier.cluster.wait; ret; }}"
        )));
        rig.cluster = [2, 1, 1];
        let out = rig.zeroes(64);
        rig.run("k", 2, 32, &Params::default().u64(out));
        let all: Vec<u32> = (0..64)
            .map(|i| expected[i as usize / 32] + i % 32)
            .collect();
        assert_eq!(rig.read_u32(out, 64), all, "{instruction}");
    }
}

#[test]
fn alloca_in_recursion() {
    let ptx = nvcc(
        "alloca",
        r#"__device__ __noinline__ int f(int n, int depth) {
             int* a = (int*)alloca(n * sizeof(int));
             for (int i = 0; i < n; i++) a[i] = i + depth;
             int below = depth ? f(n + 1, depth - 1) : 0;
             int sum = 0; for (int i = 0; i < n; i++) sum += a[i];
             return sum + below;
           }
           __global__ void go(int* out) { out[threadIdx.x] = f(threadIdx.x % 7 + 1, threadIdx.x % 5); }"#,
    );
    fn f(n: u32, depth: u32) -> u32 {
        let below = if depth > 0 { f(n + 1, depth - 1) } else { 0 };
        (0..n).map(|i| i + depth).sum::<u32>() + below
    }
    let mut rig = Rig::new(&ptx);
    let out = rig.zeroes(64);
    rig.run("go", 1, 64, &Params::default().u64(out));
    let expected: Vec<u32> = (0..64).map(|i| f(i % 7 + 1, i % 5)).collect();
    assert_eq!(rig.read_u32(out, 64), expected);
}

fn stack(body: &str) -> Rig {
    Rig::new(&header(&format!(
        ".visible .entry k(.param .u64 p) {{ .reg .b32 %r<8>; .reg .b64 %d<8>; ld.param.u64 %d0, [p]; mov.u64 %d7, 64;\n{body}\nret; }}"
    )))
}

#[test]
fn stacks_are_saved_and_restored() {
    let mut rig = stack(
        "stacksave.u64 %d1; alloca.u64 %d2, %d7, 128; st.local.u32 [%d2+60], 5; ld.local.u32 %r0, [%d2+60];
         and.b64 %d4, %d2, 127; cvt.u32.u64 %r2, %d4; stackrestore.u64 %d1; alloca.u64 %d3, %d7;
         sub.u64 %d5, %d3, %d2; cvt.u32.u64 %r3, %d5; cvta.local.u64 %d6, %d3; ld.u32 %r1, [%d6+60];
         st.global.v4.u32 [%d0], {%r0, %r1, %r2, %r3};",
    );
    let p = rig.zeroes(4);
    rig.run("k", 1, 1, &Params::default().u64(p));
    assert_eq!(rig.read_u32(p, 4), [5, 0, 0, 0]);
    let trap = |body: &str| {
        let mut rig = stack(body);
        let p = rig.zeroes(4);
        rig.trap("k", 1, 1, &Params::default().u64(p))
    };
    let found = trap("alloca.u64 %d2, %d7; mov.u64 %d7, 524288;\nalloca.u64 %d2, %d7;");
    assert_eq!(found.kind, TrapKind::StackOverflow);
    assert_eq!(
        found.message,
        "`alloca` of 524288 bytes after 64: a thread has 524288 bytes of local memory"
    );
    let found = trap("mov.u64 %d1, 8; stackrestore.u64 %d1;");
    assert_eq!(
        found.message,
        "`stackrestore` of 0x8, which `stacksave` did not give"
    );
    let found = trap("alloca.u64 %d2, %d7; ld.local.u32 %r0, [%d2+64];");
    assert!(
        matches!(found.kind, TrapKind::OutOfBounds { space: "local", .. }),
        "{found}"
    );
}

#[test]
fn parameters_beyond_four_kilobytes() {
    let ptx = nvcc(
        "parameters",
        r#"struct Big { int a[5000]; };
           __global__ void big(__grid_constant__ const Big b, int* out) {
             const int* p = &b.a[2];
             out[threadIdx.x] = b.a[threadIdx.x * 100] + p[4997 - threadIdx.x];
           }"#,
    );
    let mut rig = Rig::new(&ptx);
    let out = rig.zeroes(32);
    let params = (0..5000u32).fold(Params::default(), |params, i| params.u32(i * 3));
    rig.run("big", 1, 32, &params.u64(out));
    let expected: Vec<u32> = (0..32).map(|i| 300 * i + 3 * (4999 - i)).collect();
    assert_eq!(rig.read_u32(out, 32), expected);
}

#[test]
fn packed_and_narrow_numbers() {
    let ptx = nvcc(
        "narrow",
        r#"#include <cuda_fp16.h>
           #include <cuda_fp8.h>
           __global__ void narrow(const float* in, unsigned* out) {
             __nv_fp8_e4m3 a(in[0]); __nv_fp8_e5m2 b(in[1]);
             __nv_fp8x4_e4m3 c(make_float4(in[0], in[1], in[2], in[3]));
             float4 back = (float4)c;
             out[0] = a.__x; out[1] = b.__x; out[2] = c.__x;
             out[3] = (unsigned)(int)(back.x * 4); out[4] = (unsigned)(int)(back.z * 4);
             __half2 x = __floats2half2_rn(in[0], in[1]), y = __floats2half2_rn(in[0], in[2]);
             out[5] = __heq2_mask(x, y); out[6] = __hlt2_mask(x, y);
             out[7] = __vimax_s32_relu((int)in[2], (int)in[3]); out[8] = __vabsdiffu4(0x01020304, 0x04030201);
             out[9] = __vsads4(0x01ff0304, 0x04030201);
           }"#,
    );
    let mut rig = Rig::new(&ptx);
    let input = rig.f32s(&[1.25, 3.0, -1000.0, -7.0]);
    let out = rig.zeroes(10);
    rig.run("narrow", 1, 1, &Params::default().u64(input).u64(out));
    let expected = [
        0x3a,
        0x42,
        0xcefe_443a,
        5,
        (-448i32 * 4).cast_unsigned(),
        0x0000_ffff,
        0,
        0,
        0x0301_0103,
        3 + 4 + 1 + 3,
    ];
    assert_eq!(rig.read_u32(out, 10), expected);
}

#[test]
fn malformed_asynchronous_stores_and_stacks() {
    let text = |body: &str| {
        header(&format!(
            ".visible .entry k(.param .u64 p) {{ .reg .b32 %r<8>; .reg .b64 %d<4>; .shared .align 8 .b64 bar;\n{body}\nret; }}"
        ))
    };
    let by_barrier = "weak.shared::cluster.mbarrier::complete_tx::bytes";
    let cases = [
        (
            format!("st.async.{by_barrier}.v2.b32 [%r0], {{%r1}}, [bar];"),
            "1 registers for 2 elements",
        ),
        (
            format!("st.async.{by_barrier}.b32 [%r0], %r1;"),
            "operand 3 is missing",
        ),
        (
            "alloca.u64 %d0, %d1, 12;".to_owned(),
            "the alignment is not a power of two",
        ),
    ];
    for (body, reason) in cases {
        let error = Rig::new(&text(&body))
            .module
            .decode_all()
            .expect_err(&body)
            .to_string();
        let name = body.split(' ').next().unwrap_or_default();
        assert_eq!(
            error,
            format!("function `k`, PTX line 5: `{name}`: {reason}")
        );
    }
    let trap = |body: &str| {
        let mut rig = Rig::new(&text(body));
        let p = rig.zeroes(1);
        rig.trap("k", 1, 1, &Params::default().u64(p))
    };
    for (body, reason) in [
        (
            "st.async.global.b32 [%d0], %r1, [bar];",
            "modifier `.global`",
        ),
        (
            "st.async.weak.shared::cluster.b32 [%r0], %r1, [bar];",
            "a form without type or barrier",
        ),
        (
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r0], %r1, [bar];",
            "operation or type",
        ),
    ] {
        let found = trap(body);
        assert_eq!(found.kind, TrapKind::Unsupported);
        assert!(found.message.ends_with(reason), "{found}");
    }
    let found = trap(&format!(
        "mov.u32 %r0, 1088;\nst.async.{by_barrier}.b32 [%r0], %r1, [bar];"
    ));
    assert_eq!(
        found.message,
        "4-byte store at shared::cluster address 0x440 is out of bounds: the block has 16 bytes from 0x400 on"
    );
}

#[test]
fn kernels_launch_kernels() {
    let text = header(
        ".extern .func (.param .b64 r) cudaGetParameterBufferV2(.param .b64 f, .param .align 4 .b8 g[12], .param .align 4 .b8 b[12], .param .b32 s);
         .extern .func (.param .b32 r) cudaLaunchDeviceV2(.param .b64 p, .param .b64 s);
         .visible .entry child(.param .u64 out, .param .u32 add) { .reg .b64 a; .reg .b32 r, s; ld.param.u64 a, [out]; ld.param.u32 r, [add];
           mov.u32 s, %dynamic_smem_size; add.u32 r, r, s; atom.global.add.u32 s, [a], r; ret; }
         .visible .entry parent(.param .u64 out, .param .u32 threads) { .reg .b64 a, b; .reg .b32 r, t;
           ld.param.u64 a, [out]; ld.param.u32 t, [threads]; mov.u64 b, child;
           { .param .b64 f; .param .align 4 .b8 g[12]; .param .align 4 .b8 n[12]; .param .b32 s; .param .b64 p;
             st.param.b64 [f], b; st.param.b32 [g], 3; st.param.b32 [g+4], 1; st.param.b32 [g+8], 1;
             st.param.b32 [n], t; st.param.b32 [n+4], 1; st.param.b32 [n+8], 1; st.param.b32 [s], 100;
             call (p), cudaGetParameterBufferV2, (f, g, n, s); ld.param.b64 b, [p]; }
           st.u64 [b], a; mov.u32 r, %tid.x; st.u32 [b+8], r;
           { .param .b64 p; .param .b64 s; .param .b32 e; st.param.b64 [p], b; st.param.b64 [s], 0;
             call (e), cudaLaunchDeviceV2, (p, s); ld.param.b32 r, [e]; }
           atom.global.add.u32 t, [a+4], r; ret; }",
    );
    let mut rig = Rig::new(&text);
    let out = rig.zeroes(2);
    let used = rig.gpu.memory_info().1;
    rig.run("parent", 1, 4, &Params::default().u64(out).u32(32));
    // Each of 4 threads launches 3 blocks of 32 threads, which add its number and 100.
    assert_eq!(rig.read_u32(out, 2), [96 * (400 + 6), 0]);
    rig.run("parent", 1, 4, &Params::default().u64(out).u32(2000));
    assert_eq!(
        rig.read_u32(out, 2),
        [96 * (400 + 6), 4 * 9],
        "invalid configurations"
    );
    assert_eq!(rig.gpu.memory_info().1, used, "nothing is left");
}

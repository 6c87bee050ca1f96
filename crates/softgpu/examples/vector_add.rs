//! Times vectorAdd over 1 M elements, plain and with a counting probe at its entry.
#![expect(clippy::print_stdout, reason = "a program for people")]

use std::time::Instant;

use warpbpf_softgpu::{Config, Gpu, Launch, Outcome};

const KERNEL: &str = r"
.version 8.3
.target sm_90
.address_size 64
.global .align 8 .u64 hits[4];
.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
    .reg .pred %p<4>;
    .reg .f32 %f<4>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<24>;
    //PROBE
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [c];
    ld.param.u32 %r2, [n];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r1, %r3, %r4, %r5;
    setp.ge.s32 %p1, %r1, %r2;
    @%p1 bra DONE;
    cvta.to.global.u64 %rd4, %rd1;
    mul.wide.s32 %rd5, %r1, 4;
    add.s64 %rd6, %rd4, %rd5;
    cvta.to.global.u64 %rd7, %rd2;
    add.s64 %rd8, %rd7, %rd5;
    ld.global.f32 %f1, [%rd8];
    ld.global.f32 %f2, [%rd6];
    add.f32 %f3, %f2, %f1;
    cvta.to.global.u64 %rd9, %rd3;
    add.s64 %rd10, %rd9, %rd5;
    st.global.f32 [%rd10], %f3;
DONE:
    ret;
}
";

const PROBE: &str = r"
    {
    .reg .pred p;
    .reg .b32 r<8>;
    .reg .b64 d<8>;
    activemask.b32 r0;
    mov.u32 r1, %lanemask_lt;
    and.b32 r2, r0, r1;
    setp.ne.u32 p, r2, 0;
    popc.b32 r3, r0;
    cvt.u64.u32 d0, r3;
    mov.u32 r4, %smid;
    rem.u32 r4, r4, 4;
    mov.u64 d1, hits;
    mad.wide.u32 d2, r4, 8, d1;
    @!p red.relaxed.gpu.global.add.u64 [d2], d0;
    }
";

fn main() {
    let n: u32 = 1 << 20;
    for (name, probe) in [("plain", ""), ("probed", PROBE)] {
        let gpu = Gpu::new(Config {
            memory: 256 << 20,
            ..Config::default()
        });
        let module = gpu
            .load(&KERNEL.replace("//PROBE", probe))
            .expect("the module loads");
        let kernel = module.kernel("add").expect("the kernel");
        let buffers = [0; 3].map(|_| gpu.alloc(u64::from(n) * 4).expect("memory"));
        let mut params = Vec::new();
        buffers
            .iter()
            .for_each(|b| params.extend_from_slice(&b.to_le_bytes()));
        params.extend_from_slice(&n.to_le_bytes());
        for _ in 0..3 {
            let start = Instant::now();
            let outcome = gpu.launch(Launch {
                kernel: &kernel,
                grid: [n / 512, 1, 1],
                block: [512, 1, 1],
                cluster: [1, 1, 1],
                dynamic_shared: 0,
                params: &params,
                grid_id: 1,
                stdout: None,
            });
            let seconds = start.elapsed().as_secs_f64();
            match outcome {
                Ok(Outcome::Done { steps }) => {
                    println!("{name}: {steps} warp instructions, {:.1} ms", seconds * 1e3);
                }
                other => println!("{name}: {other:?}"),
            }
        }
    }
}

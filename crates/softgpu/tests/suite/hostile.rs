//! Texts that are almost PTX: whatever they are, the emulator answers with an error, a trap or a
//! result.

use crate::common::{config, header};
use proptest::prelude::*;
use warpbpf_softgpu::{Config, Gpu, Launch};

/// A kernel that uses most families of instructions.
const KERNEL: &str = r"
.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
.global .align 8 .u64 table[2] = {twice, table+8};
.global .align 4 .f32 floats[3] = {1.5, 0f3F800000, -2.0};
.shared .align 8 .b8 box[256];
.extern .shared .align 16 .b8 dyn[];
.func (.param .b32 d) twice(.param .b32 a) { .reg .b32 r; ld.param.b32 r, [a]; shl.b32 r, r, 1; st.param.b32 [d], r; ret; }
.visible .entry k(.param .u64 p, .param .u32 n) .maxntid 64, 1, 1
{
    .local .align 8 .b8 depot[32];
    .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<16>; .reg .f32 %f<8>; .reg .b64 %rd<16>; .reg .f64 %d<4>;
    .file 1 'a.cu'
    .loc 1 3 5
    ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x; mad.lo.s32 %r3, %r2, 3, %r1;
    mul.wide.u32 %rd2, %r2, 4; add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r3; ld.global.v2.u32 {%r4, %r5}, [%rd1];
    mov.b64 %rd4, {%r4, %r5}; mov.b64 {%r6, %r7}, %rd4;
    cvta.local.u64 %rd5, %rd6; mov.u64 %rd6, depot; st.local.u8 [depot+3], %r2; ld.local.s8 %r8, [depot+3];
    mov.u32 %r9, box; shl.b32 %r10, %r2, 2; add.u32 %r9, %r9, %r10; st.shared.u32 [%r9], %r2;
    bar.sync 0; bar.red.popc.u32 %r11, 1, %p1; barrier.sync.aligned 2, 64;
    setp.lt.s32 %p1, %r2, 20; @%p1 bra LOW; add.u32 %r3, %r3, 1;
    LOW: shfl.sync.bfly.b32 %r12|%p2, %r3, 1, 31, -1; vote.sync.ballot.b32 %r13, %p2, -1;
    match.any.sync.b32 %r14, %r2, -1; redux.sync.add.u32 %r15, %r2, -1; activemask.b32 %r15;
    atom.global.add.u32 %r4, [%rd1], 1; red.shared.max.u32 [box], %r2; atom.global.cas.b32 %r5, [%rd1], 0, 1;
    cvt.rn.f32.u32 %f1, %r2; fma.rn.f32 %f2, %f1, 0f40000000, 1.0; sqrt.rn.f64 %d1, %d2;
    { .param .b32 x; .param .b32 y; st.param.b32 [x], %r2; call.uni (y), twice, (x); ld.param.b32 %r6, [y]; }
    ld.global.u64 %rd7, [table]; q: .callprototype (.param .b32 _) _ (.param .b32 _);
    { .param .b32 x; .param .b32 y; st.param.b32 [x], %r2; call (y), %rd7, (x), q; }
    and.b32 %r7, %r2, 1; T: .branchtargets A, B; brx.idx %r7, T;
    A: mov.u32 %r8, %clock; B: nanosleep.u32 5; membar.gl; @!%p1 exit;
    mbarrier.init.shared.b64 [box+248], 20; cp.async.ca.shared.global [box+64], [%rd1], 4; cp.async.wait_all;
    lop3.b32 %r1, %r2, %r3, %r4, 0x96; prmt.b32 %r1, %r2, %r3, 0x1234; dp4a.u32.u32 %r1, %r2, %r3, %r4;
    ret;
}
";

fn run(text: &str, seed: Option<u64>) {
    let gpu = Gpu::new(Config {
        memory: 1 << 20,
        step_limit: Some(5000),
        threads: 1,
        seed,
        ..config()
    });
    let Ok(module) = gpu.load(text) else { return };
    let Some(memory) = gpu.alloc(512) else { return };
    let mut params = memory.to_le_bytes().to_vec();
    params.resize(64, 7);
    let names: Vec<String> = module.kernels().map(str::to_owned).collect();
    for name in names {
        let kernel = module.kernel(&name).expect("it was listed");
        let _ = kernel.info();
        let _ = gpu.launch(Launch {
            kernel: &kernel,
            grid: [2, 1, 1],
            block: [64, 1, 1],
            cluster: [1, 1, 1],
            dynamic_shared: 64,
            params: &params,
            grid_id: 0,
            stdout: None,
        });
    }
}

#[test]
fn the_text_itself_runs() {
    let text = header(&KERNEL.replace('\'', "\""));
    let gpu = Gpu::new(Config {
        memory: 1 << 20,
        ..config()
    });
    gpu.load(&text)
        .expect("loads")
        .decode_all()
        .expect("decodes");
    run(&text, None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mangled_texts(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..5u32), 1..6),
        seed in prop::option::of(0..100u64),
    ) {
        // Tokens rather than bytes: most byte edits would not get past the parser.
        let mut tokens: Vec<String> = Vec::new();
        for c in header(&KERNEL.replace('\'', "\"")).chars() {
            let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '%' | '$');
            match tokens.last_mut() {
                Some(last) if word(c) && last.ends_with(word) => last.push(c),
                _ => tokens.push(c.to_string()),
            }
        }
        for (at, from, kind) in edits {
            let (at, from) = (at.index(tokens.len()), from.index(tokens.len()));
            match kind {
                0 => tokens[at].clear(),
                1 => tokens[at] = tokens[from].clone(),
                2 => tokens.swap(at, from),
                3 => tokens[at] = "-1".to_owned(),
                _ => tokens[at] = "18446744073709551615".to_owned(),
            }
        }
        run(&tokens.concat(), seed);
    }
}

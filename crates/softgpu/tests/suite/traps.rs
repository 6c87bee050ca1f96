//! What a guest can do wrong, and what it is told.

use crate::common::{Params, Rig, header, nvcc};
use warpbpf_softgpu::{Trap, TrapKind};

/// The trap of a block of 40 threads; the body starts on PTX line 5.
fn trap(body: &str) -> Trap {
    let mut rig = Rig::new(&header(&format!(
        ".visible .entry k(.param .u64 p) {{ .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %d<8>;\n{body}\nret; }}"
    )));
    let p = rig.u32s(&[0; 33]);
    assert_eq!(p, warpbpf_softgpu::ARENA_BASE);
    rig.trap("k", 2, 40, &Params::default().u64(p))
}

#[test]
fn out_of_bounds_names_place_and_nearest_allocation() {
    let found = trap(
        "ld.param.u64 %d0, [p]; mov.u32 %r0, %tid.x;\nmad.wide.u32 %d1, %r0, 4, %d0;\nst.global.u32 [%d1], %r0;",
    );
    assert_eq!(
        (found.block, found.thread, found.ptx_line),
        ([0, 0, 0], [33, 0, 0], 7)
    );
    assert_eq!(
        found.kind,
        TrapKind::OutOfBounds {
            address: 0xa00_0000_0084,
            bytes: 4,
            space: "global",
            access: "store"
        }
    );
    assert_eq!(
        found.to_string(),
        "kernel `k`, block (0,0,0), thread (33,0,0), PTX line 7: 4-byte store at global address 0xa0000000084 is out of \
         bounds: 0 bytes past the 132-byte allocation at 0xa0000000000"
    );
    let found = trap("ld.u64 %d1, [8];");
    assert!(
        found
            .message
            .starts_with("null pointer: 8-byte load at generic address 0x8 is out of bounds: "),
        "{found}"
    );
    let found = trap(
        "{ .shared .b32 s[4]; mov.u32 %r0, %tid.x; shl.b32 %r0, %r0, 2; mov.u32 %r1, s; add.u32 %r1, %r1, %r0; ld.shared.u32 %r2, [%r1]; }",
    );
    assert_eq!(
        (found.thread[0], &*found.message),
        (
            4,
            "4-byte load at shared address 0x410 is out of bounds: the block has 16 bytes from 0x400 on"
        )
    );
    let found = trap("{ .local .b32 l[4]; atom.local.add.u32 %r2, [l+16], 1; }");
    assert_eq!(
        found.message,
        "4-byte atomic at local address 0x10 is out of bounds: the thread has 16 bytes"
    );
    let found =
        trap("mov.u64 %d0, p; cvta.param.u64 %d0, %d0; ld.u32 %r0, [%d0+4]; st.u32 [%d0], 1;");
    assert_eq!(
        found.message,
        "4-byte store at generic address 0x300000000000000 is out of bounds: the kernel has 8 bytes, read only"
    );
}

#[test]
fn misaligned() {
    let found = trap("ld.param.u64 %d0, [p]; ld.global.v2.u32 {%r0, %r1}, [%d0+4];");
    assert_eq!(
        found.kind,
        TrapKind::Misaligned {
            address: 0xa00_0000_0004,
            bytes: 8
        }
    );
    assert_eq!(
        found.message,
        "misaligned 8-byte load at global address 0xa0000000004"
    );
}

#[test]
fn freed_memory_is_not_accessible() {
    let mut rig = Rig::new(&header(
        ".visible .entry k(.param .u64 p) { .reg .b32 r; .reg .b64 d; ld.param.u64 d, [p]; ld.global.u32 r, [d]; ret; }",
    ));
    let p = rig.u32s(&[0; 8]);
    rig.run("k", 1, 1, &Params::default().u64(p));
    rig.gpu.free(p).expect("freed");
    assert_eq!(
        rig.trap("k", 1, 1, &Params::default().u64(p)).message,
        "4-byte load at global address 0xa0000000000 is out of bounds: no memory is allocated"
    );
}

#[test]
fn explicit_traps_and_unknown_instructions() {
    let found = trap("mov.u32 %r0, %tid.x; setp.eq.u32 %p1, %r0, 35;\n@%p1 trap;");
    assert_eq!(
        (found.kind, found.thread[0], found.ptx_line),
        (TrapKind::TrapInstruction, 35, 6)
    );
    assert_eq!(
        trap("brkpt;").message,
        "`brkpt` was executed without a debugger"
    );
    let found = trap("\ntcgen05.wait::ld.sync.aligned;");
    assert_eq!(
        (found.kind, &*found.message),
        (
            TrapKind::Unsupported,
            "unsupported instruction `tcgen05.wait::ld.sync.aligned` at line 6"
        )
    );
    // Only if it is executed.
    let mut rig = Rig::new(&header(
        ".visible .entry k() { .reg .pred p; setp.ne.u32 p, 0, 0; @p wgmma.fence.sync.aligned; ret; }",
    ));
    rig.run("k", 1, 32, &Params::default());
}

#[test]
fn calls_that_go_wrong() {
    let found = trap("mov.u64 %d0, 64;\nq: .callprototype _ ();\ncall %d0, q;");
    assert_eq!((found.kind, found.ptx_line), (TrapKind::InvalidCall, 7));
    assert_eq!(
        found.message,
        "indirect call to 0x40: this is not the address of a function"
    );
    let mut rig = Rig::new(&header(
        ".func deep();\n.func deep() {\n call deep; ret; }\n.visible .entry k() { call deep; ret; }",
    ));
    let found = rig.trap("k", 1, 1, &Params::default());
    assert_eq!(
        (found.kind.clone(), &*found.function, found.ptx_line),
        (TrapKind::StackOverflow, "deep", 6)
    );
    assert_eq!(
        found.to_string(),
        "kernel `k`, block (0,0,0), thread (0,0,0), function `deep`, PTX line 6: call of `deep` is more than 1024 calls deep"
    );
}

#[test]
fn function_pointers_belong_to_their_module() {
    let text = header(
        ".global .u64 here = f; .func f() { ret; }
         .visible .entry k(.param .u64 p) { .reg .b64 d; ld.param.u64 d, [p]; q: .callprototype _ (); call d, q; ret; }",
    );
    let mut rig = Rig::new(&text);
    let other = rig.gpu.load(&text).expect("loads");
    let pointer = |module: &warpbpf_softgpu::Module| {
        rig.read_u64(module.global("here").expect("here").0, 1)[0]
    };
    let (mine, theirs) = (pointer(&rig.module), pointer(&other));
    rig.run("k", 1, 1, &Params::default().u64(mine));
    let found = rig.trap("k", 1, 1, &Params::default().u64(theirs));
    assert!(
        found
            .message
            .ends_with("the function belongs to another module"),
        "{found}"
    );
}

#[test]
fn threads_that_wait_for_ever() {
    let found =
        trap("mov.u32 %r0, %tid.x; setp.lt.u32 %p1, %r0, 8;\n@%p1 bar.sync 1;\nbar.sync 2;");
    assert_eq!(found.kind, TrapKind::Deadlock);
    assert_eq!(
        found.message,
        "deadlock: no thread of the block can go on: 8 threads wait for barrier 1 at PTX line 6, \
         32 threads wait for barrier 2 at PTX line 7"
    );
    let found = trap(
        "mov.u32 %r0, %laneid; setp.eq.u32 %p1, %r0, 3;\n@%p1 shfl.sync.idx.b32 %r1, %r0, 0, 31, 12;\n@!%p1 bar.sync 0;",
    );
    assert!(
        found
            .message
            .contains("2 threads wait for other lanes of its member mask at PTX line 6"),
        "{found}"
    );
}

#[test]
fn synchronisation_that_is_not_allowed() {
    let found = trap("vote.sync.ballot.b32 %r0, 1, 6;");
    assert_eq!(found.kind, TrapKind::InvalidSync);
    assert_eq!(
        found.message,
        "lane 0 executes a warp-synchronous instruction with member mask 0x00000006, which does not hold it"
    );
    assert_eq!(
        trap("bar.sync 16;").message,
        "barrier 16 does not exist: there are 16"
    );
    assert_eq!(
        trap("bar.sync 1, 33;").message,
        "barrier 1 for 33 threads: the count must be a positive multiple of 32"
    );
    let found = trap(
        "mov.u32 %r0, %tid.x; setp.lt.u32 %p1, %r0, 32; @%p1 bar.sync 1, 64; @!%p1 bar.sync 1, 96;",
    );
    assert_eq!(
        found.message,
        "threads meet at barrier 1 with different thread counts, 64 and 96 (0: the whole block)"
    );
}

#[test]
fn assertions_and_bad_frees() {
    let mut rig = Rig::new(&nvcc(
        "assertions",
        "#include <cassert>\n__global__ void check(int n) { assert(threadIdx.x != n); }\n\
         __global__ void release(int* p) { free(p); }",
    ));
    let found = rig.trap("check", 1, 64, &Params::default().u32(50));
    let (file, line) = found.source.clone().expect("line information");
    assert!(file.ends_with("a.cu") && line == 2, "{file}:{line}");
    let place = format!("PTX line {} ({file}:2): ", found.ptx_line);
    assert!(found.to_string().contains(&place), "{found}");
    assert_eq!((found.kind, found.thread), (TrapKind::Assert, [50, 0, 0]));
    assert!(
        found
            .message
            .ends_with("a.cu:2: void check(int): assertion `threadIdx.x != n` failed"),
        "{}",
        found.message
    );
    let p = rig.zeroes(1);
    let found = rig.trap("release", 1, 1, &Params::default().u64(p));
    assert_eq!(
        found.message,
        format!("`free` of {p:#x}, which device `malloc` did not return")
    );
}

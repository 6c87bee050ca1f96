//! What can be done wrong with matrix instructions, and what the guest is told.

use crate::common::{Params, Rig, header};
use warpbpf_softgpu::{Trap, TrapKind};

fn text(body: &str) -> String {
    header(&format!(
        ".visible .entry k(.param .u64 p) {{ .reg .pred %p<4>; .reg .b32 %r<16>; .reg .f32 %f<16>; .reg .b64 %d<8>;\n{body}\nret; }}"
    ))
}

/// The trap of one block; the body starts on PTX line 5.
fn trap(threads: u32, body: &str) -> Trap {
    let mut rig = Rig::new(&text(body));
    let p = rig.zeroes(32);
    rig.trap("k", 1, threads, &Params::default().u64(p))
}

const MMA: &str = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1}, {%r2}, {%f0,%f1,%f2,%f3};";

#[test]
fn lanes_that_are_missing() {
    let found = trap(
        64,
        &format!("mov.u32 %r0, %tid.x; setp.lt.u32 %p1, %r0, 48;\n@%p1 {MMA}"),
    );
    assert_eq!(
        (
            found.kind.clone(),
            found.thread[0],
            found.ptx_line,
            &*found.message
        ),
        (
            TrapKind::InvalidSync,
            32,
            6,
            "`mma` is executed by the lanes 0x0000ffff only: it takes all 32 lanes of the warp"
        )
    );
    let found = trap(20, "movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r0;");
    assert_eq!(
        (found.kind, &*found.message),
        (
            TrapKind::InvalidSync,
            "`movmatrix` is executed by the lanes 0x000fffff only: it takes all 32 lanes of the warp"
        )
    );
    let found = trap(
        32,
        &format!("mov.u32 %r0, %tid.x; setp.lt.u32 %p1, %r0, 8;\n@%p1 {MMA}\nbar.sync 0;"),
    );
    assert_eq!(found.kind, TrapKind::Deadlock);
    assert_eq!(
        found.message,
        "deadlock: no thread of the block can go on: 8 threads wait for other lanes of its member mask at PTX line 6, \
         24 threads wait for barrier 0 at PTX line 7"
    );
}

#[test]
fn diverged_lanes_that_meet_are_no_mistake() {
    let body = format!(
        "mov.u32 %r0, %tid.x; setp.lt.u32 %p1, %r0, 8; @%p1 bra MEET;\nnanosleep.u32 5;\nMEET: mov.u32 %r0, 0; mov.u32 %r1, 0; mov.u32 %r2, 0; {MMA}"
    );
    let mut rig = Rig::new(&text(&body));
    let p = rig.zeroes(1);
    rig.run("k", 1, 64, &Params::default().u64(p));
}

#[test]
fn addresses() {
    let load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r0];";
    let found = trap(
        32,
        &format!(
            "{{ .shared .align 16 .b8 s[112]; mov.u32 %r0, %tid.x; shl.b32 %r0, %r0, 4; add.u32 %r0, %r0, 1024;\n{load} }}"
        ),
    );
    assert_eq!(
        (found.thread[0], &*found.message),
        (
            7,
            "16-byte load at shared address 0x470 is out of bounds: the block has 112 bytes from 0x400 on"
        )
    );
    let found = trap(
        32,
        &format!("{{ .shared .align 16 .b8 s[512]; mov.u32 %r0, 8;\n{load} }}"),
    );
    assert_eq!(
        found.kind,
        TrapKind::Misaligned {
            address: 8,
            bytes: 16
        }
    );
    let found = trap(
        32,
        "ld.param.u64 %d0, [p];\nstmatrix.sync.aligned.m8n8.x1.b16 [%d0], {%r1};",
    );
    assert_eq!(
        found.message,
        "16-byte store at shared address 0xa0000000000 is out of bounds: the block has 0 bytes from 0x400 on"
    );
    let found = trap(
        32,
        "ld.param.u64 %d0, [p];\nwmma.load.c.sync.aligned.row.m16n16k16.global.f32 {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}, [%d0], 16;",
    );
    assert_eq!(
        (found.thread[0], &*found.message),
        (
            8,
            "4-byte load at global address 0xa0000000080 is out of bounds: 0 bytes past the 128-byte allocation at \
             0xa0000000000"
        )
    );
}

const GROUP: &str = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0,%f1,%f2,%f3}, %d0, %d0, %p0, 1, 1, 0, 0;";

#[test]
fn warpgroups() {
    let found = trap(128, &format!("mov.u64 %d0, 0x4000000000;\n{GROUP}"));
    assert_eq!(
        found.message,
        "2-byte load at shared address 0x400 is out of bounds: the block has 0 bytes from 0x400 on"
    );
    let found = trap(96, GROUP);
    assert_eq!(
        (found.kind, &*found.message),
        (
            TrapKind::InvalidSync,
            "`wgmma.mma_async` takes a warpgroup of 4 warps: warp 0 is one of 3 that follow the last whole group"
        )
    );
}

/// Forms that the emulator does not have are traps when they are executed.
#[test]
fn forms_that_are_missing() {
    let eight = "{%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}";
    let cases = [
        (
            format!("mma.sync.aligned.m8n8k4.row.col.s32.f16.f16.s32 {eight}, {{%r0,%r1}}, {{%r2,%r3}}, {eight};"),
            "unsupported instruction `mma.sync.aligned.m8n8k4.row.col.s32.f16.f16.s32` at line 5: this shape with these types",
        ),
        (
            "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1}, {%r2,%r3}, {%f0,%f1,%f2,%f3}, %r4, 0;".to_owned(),
            "unsupported instruction `mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32` at line 5: modifier `.sp`",
        ),
        (
            "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f0,%f1,%f2,%f3}, %d0, %d0, %r0, 0, %p0, 1, 1, 0, 0;".to_owned(),
            "unsupported instruction `wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16` at line 5: modifier `.sp`",
        ),
        (
            "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0,%r1}, [%r2];".to_owned(),
            "unsupported instruction `ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8` at line 5: modifier `.m16n16`",
        ),
        (
            "wmma.load.a.sync.aligned.row.m16n16k32.global.f16 {%r0,%r1}, [%d0];".to_owned(),
            "unsupported instruction `wmma.load.a.sync.aligned.row.m16n16k32.global.f16` at line 5: this shape with this type and layout",
        ),
        (
            "mma.sync.aligned.m16n8k8.row.col.s32.f16.f16.s32 {%r0,%r1,%r2,%r3}, {%r0,%r1}, {%r2}, {%r0,%r1,%r2,%r3};".to_owned(),
            "unsupported instruction `mma.sync.aligned.m16n8k8.row.col.s32.f16.f16.s32` at line 5: this shape with these types",
        ),
    ];
    for (body, message) in cases {
        let found = trap(128, &body);
        assert_eq!(
            (found.kind, &*found.message),
            (TrapKind::Unsupported, message)
        );
    }
}

/// What is malformed is refused when the kernel is decoded.
#[test]
fn malformed() {
    let cases = [
        (
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0,%f1,%f2}, {%r0,%r1}, {%r2}, {%f0,%f1,%f2,%f3};",
            "3 registers for a fragment of 4",
        ),
        (
            "mma.sync.aligned.row.col.f32.f16.f16.f32 {%f0}, {%r0}, {%r2}, {%f0};",
            "the shape is missing",
        ),
        (
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16 {%f0}, {%r0}, {%r2}, {%f0};",
            "it takes four types",
        ),
        (
            "ldmatrix.sync.aligned.m8n8.shared.b16 {%r0}, [%r1];",
            "the number of matrices is missing",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0,%f1,%f2,%f3}, %d0, %d0, %p0, 1, 2, 0, 0;",
            "a scale of 2: it must be 1 or -1",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0,%f1,%f2,%f3}, %d0, %d0, %p0, 1, 1, 3, 0;",
            "a transposition of 3: it must be 0 or 1",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0,%f1,%f2,%f3}, %d0, %d0, %p0, 1, 1, 0;",
            "operand 8 is missing",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0,%f1,%f2,%f3}, %d0, %d0, %p0, %r0, 1, 0, 0;",
            "operand 5 is not an immediate",
        ),
        (
            "wmma.mma.sync.aligned.row.m16n16k16.f32.f32 {%f0}, {%r0}, {%r0}, {%f0};",
            "it takes two layouts",
        ),
        (
            "wmma.mma.sync.aligned.row.col.m16n16k16.f32 {%f0}, {%r0}, {%r0}, {%f0};",
            "it takes two or four types",
        ),
        (
            "wmma.load.a.sync.aligned.row.m16n16k16.global {%r0}, [%d0];",
            "it takes one shape, layout and type",
        ),
    ];
    for (body, reason) in cases {
        let rig = Rig::new(&text(body));
        let error = rig.module.decode_all().expect_err(body).to_string();
        assert!(
            error.starts_with("function `k`, PTX line 5: ") && error.ends_with(reason),
            "{error}"
        );
    }
}

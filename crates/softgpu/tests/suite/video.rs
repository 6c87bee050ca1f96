//! Video instructions: parts of registers, saturation, second operations and merging.

use crate::common::{Params, Rig, header};
use warpbpf_softgpu::TrapKind;

const TEXT: &str = ".visible .entry k(.param .u64 p) { .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %d<4>;
    ld.param.u64 %d0, [p]; ld.global.u32 %r1, [%d0]; ld.global.u32 %r2, [%d0+4]; ld.global.u32 %r3, [%d0+8];
    mov.u32 %r0, %r3;\n";

fn run(instruction: &str, [a, b, c]: [u32; 3]) -> u32 {
    let mut rig = Rig::new(&header(&format!(
        "{TEXT}{instruction};\nst.global.u32 [%d0], %r0; ret; }}"
    )));
    let p = rig.u32s(&[a, b, c]);
    rig.run("k", 1, 1, &Params::default().u64(p));
    rig.read_u32(p, 1)[0]
}

#[test]
fn scalar() {
    let minus = |n: i32| n.cast_unsigned().wrapping_neg();
    let cases = [
        (
            "vadd.s32.u32.s32 %r0, %r1.b0, %r2.h1",
            [0x1ff, 0xfffe_0000, 9],
            0xfd,
        ),
        (
            "vadd.u32.s32.s32 %r0, %r1.b1, %r2",
            [0x8000, 1, 9],
            minus(127),
        ),
        ("vadd.u32.s32.s32.sat %r0, %r1.b1, %r2", [0x8000, 1, 9], 0),
        (
            "vadd.s32.u32.u32.sat %r0, %r1, %r2",
            [0xffff_ffff, 1, 9],
            0x7fff_ffff,
        ),
        ("vsub.s32.s32.s32.max %r0, %r1, %r2, %r3", [3, 10, 5], 5),
        (
            "vsub.s32.s32.s32.min %r0, %r1, %r2, %r3",
            [3, 10, 5],
            minus(7),
        ),
        ("vsub.u32.u32.u32.min %r0, %r1, %r2, %r3", [3, 10, 5], 5),
        (
            "vabsdiff.u32.u32.u32.add %r0, %r1, %r2, %r3",
            [3, 10, 100],
            107,
        ),
        ("vmin.s32.s32.s32 %r0, %r1, %r2", [minus(4), 3, 0], minus(4)),
        ("vmin.u32.u32.u32 %r0, %r1, %r2", [minus(4), 3, 0], 3),
        (
            "vmax.s32.s32.s32 %r0, %r1.b0, %r2.b0",
            [0x80, 0x7f, 0],
            0x7f,
        ),
        // Merged into the third source.
        (
            "vadd.u32.u32.u32 %r0.b1, %r1, %r2, %r3",
            [0x12, 0x100, 0xaabb_ccdd],
            0xaabb_12dd,
        ),
        (
            "vadd.s32.s32.s32.sat %r0.b3, %r1, %r2, %r3",
            [100, 100, 0xaabb_ccdd],
            0x7fbb_ccdd,
        ),
        (
            "vadd.u32.u32.u32.sat %r0.h1, %r1, %r2, %r3",
            [0x1_0000, 1, 0x1111_2222],
            0xffff_2222,
        ),
        ("vshl.u32.u32.u32.clamp %r0, %r1, %r2", [3, 33, 0], 0),
        ("vshl.u32.u32.u32.wrap %r0, %r1, %r2", [3, 33, 0], 6),
        (
            "vshr.s32.s32.u32.clamp %r0, %r1, %r2",
            [minus(8), 40, 0],
            u32::MAX,
        ),
        (
            "vshr.u32.u32.u32.wrap.add %r0, %r1, %r2, %r3",
            [0x80, 36, 1],
            9,
        ),
        ("vset.s32.s32.lt %r0, %r1, %r2", [minus(1), 0, 0], 1),
        ("vset.u32.u32.lt %r0, %r1, %r2", [minus(1), 0, 0], 0),
        ("vset.u32.s32.ge.add %r0, %r1, %r2, %r3", [5, 5, 7], 8),
        (
            "vset.s32.s32.eq.min %r0, %r1, %r2, %r3",
            [1, 2, minus(9)],
            minus(9),
        ),
        (
            "vset.u32.u32.eq.min %r0, %r1, %r2, %r3",
            [1, 2, minus(9)],
            0,
        ),
        (
            "vset.u32.u32.ne %r0.b2, %r1, %r2, %r3",
            [1, 2, 0xffff_ffff],
            0xff01_ffff,
        ),
        (
            "vmad.u32.u32.u32 %r0, %r1.h0, %r2.h1, %r3",
            [0x1_0003, 0x5_0000, 7],
            22,
        ),
        ("vmad.s32.s32.s32 %r0, -%r1, %r2, %r3", [3, 5, 7], minus(8)),
        ("vmad.s32.s32.s32 %r0, %r1, %r2, -%r3", [3, 5, 7], 8),
        ("vmad.u32.u32.u32.po %r0, %r1, %r2, %r3", [3, 5, 7], 23),
        (
            "vmad.s32.s32.s32.sat.shr7 %r0, %r1, %r2, %r3",
            [0x4000_0000, 0x1000, 0],
            0x7fff_ffff,
        ),
        (
            "vmad.u32.u32.u32.shr15 %r0, %r1, %r2, %r3",
            [0x8000_0000, 2, 0x8000],
            0x2_0001,
        ),
    ];
    for (instruction, sources, expected) in cases {
        let found = run(instruction, sources);
        assert_eq!(
            found, expected,
            "{instruction}: {found:#x}, not {expected:#x}"
        );
    }
}

#[test]
fn simd() {
    let cases = [
        (
            "vadd2.s32.s32.s32 %r0, %r1, %r2, %r3",
            [0x0001_ffff, 0x0002_0003, 0],
            0x0003_0002,
        ),
        (
            "vadd2.s32.s32.s32.sat %r0, %r1, %r2, %r3",
            [0x7fff_8000, 0x0001_ffff, 0],
            0x7fff_8000,
        ),
        (
            "vsub4.u32.u32.u32.sat %r0, %r1, %r2, %r3",
            [0x0510_20ff, 0x0620_1001, 0],
            0x0000_10fe,
        ),
        (
            "vabsdiff4.u32.u32.u32 %r0, %r1, %r2, %r3",
            [0x0510_20ff, 0x0620_1001, 9],
            0x0110_10fe,
        ),
        (
            "vabsdiff4.u32.u32.u32.add %r0, %r1, %r2, %r3",
            [0x0510_20ff, 0x0620_1001, 9],
            9 + 0x1 + 0x10 + 0x10 + 0xfe,
        ),
        (
            "vmax4.s32.s32.s32 %r0, %r1, %r2, %r3",
            [0x80ff_0102, 0x0000_ff03, 0],
            0x0000_0103,
        ),
        (
            "vmin2.u32.u32.u32 %r0, %r1, %r2, %r3",
            [0xffff_0001, 0x0001_ffff, 0],
            0x0001_0001,
        ),
        (
            "vavrg4.u32.u32.u32 %r0, %r1, %r2, %r3",
            [0x0102_0304, 0x0202_0405, 0],
            0x0202_0405,
        ),
        (
            "vavrg2.s32.s32.s32 %r0, %r1, %r2, %r3",
            [0xfffd_0003, 0x0000_0004, 0],
            0xfffe_0004,
        ),
        (
            "vset4.u32.u32.eq %r0, %r1, %r2, %r3",
            [0x0102_0304, 0x0100_0300, 0],
            0x0100_0100,
        ),
        (
            "vset2.s32.s32.lt.add %r0, %r1, %r2, %r3",
            [0xffff_0000, 0x0000_0001, 40],
            42,
        ),
        // A mask keeps elements of the third source; selections choose among all of both.
        (
            "vadd4.u32.u32.u32 %r0.b20, %r1, %r2, %r3",
            [0x0101_0101, 0x0101_0101, 0xaabb_ccdd],
            0xaa02_cc02,
        ),
        (
            "vadd2.u32.u32.u32 %r0.h10, %r1.h31, %r2.h20, %r3",
            [0x0001_0002, 0x0010_0020, 0],
            0x0030_0003,
        ),
    ];
    for (instruction, sources, expected) in cases {
        let found = run(instruction, sources);
        assert_eq!(
            found, expected,
            "{instruction}: {found:#x}, not {expected:#x}"
        );
    }
}

#[test]
fn what_is_unknown_or_malformed() {
    let trap = |instruction: &str| {
        let mut rig = Rig::new(&header(&format!("{TEXT}{instruction};\nret; }}")));
        let p = rig.zeroes(3);
        rig.trap("k", 1, 1, &Params::default().u64(p))
    };
    let found = trap("vadd.f32.u32.u32 %r0, %r1, %r2");
    assert_eq!(found.kind, TrapKind::Unsupported);
    assert_eq!(
        found.message,
        "unsupported instruction `vadd.f32.u32.u32` at line 7: type `.f32`"
    );
    let found = trap("vmad.u32.u32.u32.shr8 %r0, %r1, %r2, %r3");
    assert!(found.message.ends_with("modifier `.shr8`"), "{found}");
    let cases = [
        ("vadd.u32.u32.u32 %r0, %r1.b4, %r2", "part `.b4`"),
        (
            "vadd.u32.u32.u32 %r0, %r1.h4294967295, %r2",
            "part `.h4294967295`",
        ),
        (
            "vadd4.u32.u32.u32 %r0, %r1.b32, %r2, %r3",
            "a selection of 2 elements",
        ),
        (
            "vadd2.u32.u32.u32 %r0, %r1.h4x, %r2, %r3",
            "selection `.h4x`",
        ),
        ("vadd2.u32.u32.u32 %r0.h2, %r1, %r2, %r3", "element 2 of 2"),
        ("vset.u32.u32 %r0, %r1, %r2", "the comparison is missing"),
        ("vadd.u32 %r0, %r1, %r2", "types are missing"),
    ];
    for (instruction, reason) in cases {
        let rig = Rig::new(&header(&format!("{TEXT}{instruction};\nret; }}")));
        let error = rig.module.decode_all().expect_err(instruction).to_string();
        assert!(
            error.starts_with("function `k`, PTX line 7: ") && error.ends_with(reason),
            "{error}"
        );
    }
}

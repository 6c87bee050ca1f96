//! Integer, bit and selection operations: edge cases by hand, and everything against the ISA's own
//! pseudocode or wider arithmetic.

use crate::common::{both, decode, one, table};
use proptest::prelude::*;

const M32: u64 = 0xffff_ffff;

/// -1, -2, … as 32 bits.
fn n(value: i32) -> u64 {
    u64::from(value.cast_unsigned())
}

/// As 64 bits.
fn l(value: i64) -> u64 {
    value.cast_unsigned()
}

/// As 16 bits.
fn h(value: i16) -> u64 {
    u64::from(value.cast_unsigned())
}

#[test]
fn types() {
    use warpbpf_ptx::eval::Ty;
    let all = [
        ("pred", 1, false, false),
        ("b8", 8, false, false),
        ("b16", 16, false, false),
        ("b32", 32, false, false),
        ("b64", 64, false, false),
        ("u8", 8, false, false),
        ("u16", 16, false, false),
        ("u32", 32, false, false),
        ("u64", 64, false, false),
        ("s8", 8, true, false),
        ("s16", 16, true, false),
        ("s32", 32, true, false),
        ("s64", 64, true, false),
        ("f16", 16, false, true),
        ("f16x2", 32, false, true),
        ("bf16", 16, false, true),
        ("bf16x2", 32, false, true),
        ("f32", 32, false, true),
        ("f64", 64, false, true),
    ];
    for (name, bits, signed, float) in all {
        let ty = Ty::parse(name).unwrap();
        assert_eq!(
            (ty.bits(), ty.is_signed(), ty.is_float(), ty.mask()),
            (bits, signed, float, mask(bits)),
            "{name}"
        );
    }
    assert_eq!(
        (Ty::parse("b128"), Ty::parse(".u32"), Ty::parse("")),
        (None, None, None)
    );
}

#[test]
fn sums() {
    table("add.u32", &[(&[M32, 1], 0), (&[1 << 40 | 2, 3], 5)]);
    table("add.s64", &[(&[u64::MAX, 2], 1)]);
    table("add.u16", &[(&[0xffff, 0x1_0002], 1)]);
    table(
        "add.sat.s32",
        &[
            (&[0x7fff_ffff, 1], 0x7fff_ffff),
            (&[n(i32::MIN), n(-1)], n(i32::MIN)),
            (&[5, n(-7)], n(-2)),
        ],
    );
    table("sub.s32", &[(&[0, 1], M32)]);
    table("sub.u64", &[(&[0, 1], u64::MAX)]);
    table(
        "sub.sat.s32",
        &[
            (&[n(i32::MIN), 1], n(i32::MIN)),
            (&[1, n(i32::MIN)], 0x7fff_ffff),
        ],
    );
    table(
        "abs.s32",
        &[(&[n(-5)], 5), (&[n(i32::MIN)], n(i32::MIN)), (&[5], 5)],
    );
    table("abs.s16", &[(&[h(-5)], 5)]);
    table(
        "neg.s64",
        &[(&[l(i64::MIN)], l(i64::MIN)), (&[1], u64::MAX)],
    );
    table("neg.s16", &[(&[1], 0xffff)]);
    table(
        "sad.s32",
        &[(&[n(-3), 4, 10], 17), (&[n(i32::MIN), 0x7fff_ffff, 1], 0)],
    );
    table("sad.u32", &[(&[M32, 0, 1], 0), (&[1, 3, 0], 2)]);
    table("sad.u16", &[(&[1, 3, 0xffff], 1)]);
    table("add.u16x2", &[(&[0xffff_0001, 0x0001_ffff], 0)]);
}

#[test]
fn products() {
    table(
        "mul.lo.s32",
        &[(&[n(-2), 3], n(-6)), (&[0x10000, 0x10000], 0)],
    );
    table(
        "mul.hi.s32",
        &[
            (&[n(-2), 3], M32),
            (&[n(i32::MIN), n(i32::MIN)], 0x4000_0000),
        ],
    );
    table("mul.hi.u32", &[(&[M32, M32], 0xffff_fffe)]);
    table("mul.hi.u64", &[(&[u64::MAX, u64::MAX], u64::MAX - 1)]);
    table(
        "mul.hi.s64",
        &[(&[u64::MAX, u64::MAX], 0), (&[l(i64::MIN), 2], u64::MAX)],
    );
    table(
        "mul.wide.s32",
        &[(&[n(-2), 3], l(-6)), (&[n(i32::MIN), n(i32::MIN)], 1 << 62)],
    );
    table("mul.wide.u32", &[(&[M32, M32], 0xffff_fffe_0000_0001)]);
    table("mul.wide.s16", &[(&[h(-2), 3], n(-6))]);
    table("mul.wide.u16", &[(&[0xffff, 0xffff], 0xfffe_0001)]);
    table("mad.lo.s32", &[(&[n(-2), 3, 5], M32)]);
    table("mad.hi.u32", &[(&[M32, 2, M32], 0)]);
    table(
        "mad.hi.sat.s32",
        &[
            (&[0x7fff_ffff, 4, 0x7fff_ffff], 0x7fff_ffff),
            (&[n(i32::MIN), 4, n(i32::MIN)], n(i32::MIN)),
        ],
    );
    table("mad.wide.s32", &[(&[n(-2), 3, 5], u64::MAX)]);
    table(
        "mad.wide.u16",
        &[(&[0xffff, 0xffff, 0xffff_ffff], 0xfffe_0000)],
    );
    table("mad.lo.u64", &[(&[1 << 63, 2, 3], 3)]);
    table(
        "mul24.lo.s32",
        &[(&[0x00ff_ffff, 2], n(-2)), (&[0xff00_0003, 5], 15)],
    );
    table(
        "mul24.hi.u32",
        &[(&[0x00ff_ffff, 0x00ff_ffff], 0xffff_fe00)],
    );
    table(
        "mul24.hi.s32",
        &[(&[0x0080_0000, 0x007f_ffff], 0xc000_0080)],
    );
    table("mad24.lo.u32", &[(&[3, 5, 7], 22)]);
    table(
        "mad24.hi.sat.s32",
        &[(&[0x007f_ffff, 0x007f_ffff, 0x7fff_ffff], 0x7fff_ffff)],
    );
    table(
        "dp4a.s32.s32",
        &[(&[0xff02_0304, 0x0102_0304, 10], 10 + 28)],
    );
    table("dp4a.u32.s32", &[(&[0xff00_0000, 0xff00_0000, 0], n(-255))]);
    table(
        "dp4a.u32.u32",
        &[(&[0xff00_00ff, 0xff00_00ff, 1], 2 * 255 * 255 + 1)],
    );
    table("dp2a.lo.s32.u32", &[(&[0xffff_0002, 0x0403_0201, 0], 0)]);
    table("dp2a.hi.u32.u32", &[(&[0x0001_0002, 0x0403_0201, 0], 10)]);
    table(
        "dp2a.hi.s32.s32",
        &[(&[0x8000_7fff, 0x80ff_0000, 0], n(32768 * 128 - 32767))],
    );
}

#[test]
fn quotients() {
    table(
        "div.s32",
        &[
            (&[n(-7), 2], n(-3)),
            (&[n(i32::MIN), n(-1)], n(i32::MIN)),
            (&[5, 0], M32),
            (&[n(-5), 0], M32),
        ],
    );
    table("div.u32", &[(&[7, 2], 3), (&[0, 0], M32)]);
    table(
        "div.u64",
        &[(&[7, 0], u64::MAX), (&[u64::MAX, 10], u64::MAX / 10)],
    );
    table("div.s16", &[(&[h(-7), 2], h(-3)), (&[1, 0], 0xffff)]);
    table(
        "rem.s32",
        &[
            (&[n(-7), 2], n(-1)),
            (&[n(i32::MIN), n(-1)], 0),
            (&[n(-5), 0], M32),
        ],
    );
    table("rem.u64", &[(&[7, 0], u64::MAX), (&[u64::MAX, 10], 5)]);
}

#[test]
fn extrema() {
    table("min.s32", &[(&[n(-1), 1], n(-1))]);
    table("min.u32", &[(&[n(-1), 1], 1)]);
    table("max.s64", &[(&[l(-1), 1], 1)]);
    table("max.u16", &[(&[h(-1), 1], 0xffff)]);
    table("max.s16", &[(&[h(-1), 1], 1)]);
    table("max.relu.s32", &[(&[n(-1), n(-2)], 0), (&[5, 6], 6)]);
    table("min.relu.s32", &[(&[n(-1), 2], 0), (&[5, 6], 5)]);
    table("max.s32.relu", &[(&[n(-1), n(-2)], 0), (&[5, 6], 6)]);
    table("min.s16x2.relu", &[(&[0xffff_0005, 0x0001_0006], 5)]);
    table("min.s16x2", &[(&[0xffff_0001, 0x0001_0002], 0xffff_0001)]);
    table("max.u16x2", &[(&[0xffff_0001, 0x0001_0002], 0xffff_0002)]);
    table("max.relu.s16x2", &[(&[0xffff_8000, 0xfffe_0002], 2)]);
}

#[test]
fn carries() {
    assert_eq!(both("add.cc.u32", &[M32, 1]), [0, 1]);
    assert_eq!(both("add.cc.u32", &[1, 1]), [2, 0]);
    assert_eq!(both("addc.u32", &[M32, 0, 1]), [0, 1]);
    assert_eq!(both("addc.cc.u64", &[u64::MAX, u64::MAX, 1]), [u64::MAX, 1]);
    assert_eq!(both("addc.cc.s32", &[1, 2, 0]), [3, 0]);
    // As an H100 has it: the flag is the adder's, whichever instruction reads it.
    assert_eq!(both("sub.cc.u32", &[0, 1]), [M32, 0]);
    assert_eq!(both("sub.cc.u32", &[0, 0]), [0, 1]);
    assert_eq!(both("sub.cc.s32", &[n(-2), n(-2)]), [0, 1]);
    assert_eq!(both("subc.u32", &[0, 0, 0]), [M32, 0]);
    assert_eq!(both("subc.u32", &[0, 0, 1]), [0, 1]);
    assert_eq!(both("subc.cc.u64", &[5, 5, 1]), [0, 1]);
    assert_eq!(both("subc.cc.u64", &[5, 5, 0]), [u64::MAX, 0]);
    assert_eq!(both("mad.lo.cc.u32", &[M32, 2, 2]), [0, 1]);
    assert_eq!(both("mad.hi.cc.u32", &[M32, M32, 2]), [0, 1]);
    assert_eq!(both("madc.hi.u32", &[M32, M32, 1, 1]), [0, 1]);
    assert_eq!(
        both("madc.lo.cc.u64", &[u64::MAX, u64::MAX, u64::MAX - 1, 1]),
        [0, 1]
    );
    assert_eq!(both("madc.hi.s32", &[n(-2), 3, 0, 1]), [0, 1]);
    let flags = |name: &str| decode(name).map(|op| (op.reads_carry(), op.writes_carry()));
    assert_eq!(flags("add.cc.u32"), Some((false, true)));
    assert_eq!(flags("addc.u32"), Some((true, false)));
    assert_eq!(flags("madc.hi.cc.u64"), Some((true, true)));
    assert_eq!(flags("add.u32"), Some((false, false)));
}

#[test]
fn logic() {
    table("and.b32", &[(&[0x1_0000_00ff, 0x1_0000_000f], 0xf)]);
    table("or.pred", &[(&[0, 1], 1), (&[0, 2], 0)]);
    table("xor.b64", &[(&[u64::MAX, 1], u64::MAX - 1)]);
    table("not.pred", &[(&[1], 0), (&[0], 1)]);
    table("not.b16", &[(&[1], 0xfffe)]);
    table("cnot.b32", &[(&[0], 1), (&[5], 0), (&[1 << 32], 1)]);
    table("mov.b16", &[(&[0x1_2345], 0x2345)]);
    table("mov.pred", &[(&[3], 1)]);
    table(
        "lop3.b32",
        &[
            (
                &[0xf0f0, 0xcccc, 0xaaaa, 0x80],
                0x8080 & 0xf0f0 & 0xcccc & 0xaaaa,
            ),
            (&[0b1100, 0b1010, 0b0110, 0x96], 0b0000),
            (&[0xf0, 0xcc, 0xaa, 0xe8], 0xe8),
            (
                &[0xf0, 0xcc, 0xaa, 0x1b],
                0xffff_ff1b & !0xffff_ff00 | 0xffff_ff00,
            ),
        ],
    );
    assert_eq!(both("lop3.or.b32", &[0, 0, 0, 0, 1]), [0, 1]);
    assert_eq!(both("lop3.or.b32", &[1, 0, 0, 0xf0, 0]), [1, 1]);
    assert_eq!(both("lop3.and.b32", &[1, 0, 0, 0xf0, 0]), [1, 0]);
}

#[test]
fn shifts() {
    table(
        "shl.b32",
        &[
            (&[1, 31], 1 << 31),
            (&[1, 32], 0),
            (&[1, M32], 0),
            (&[1, 1 << 32], 1),
        ],
    );
    table("shl.b16", &[(&[0xffff, 15], 0x8000), (&[1, 16], 0)]);
    table("shl.b64", &[(&[1, 63], 1 << 63), (&[1, 64], 0)]);
    table("shr.u32", &[(&[M32, 31], 1), (&[M32, 32], 0)]);
    table("shr.b16", &[(&[0x1_8000, 15], 1), (&[0xffff, 16], 0)]);
    table(
        "shr.s32",
        &[(&[n(-8), 1], n(-4)), (&[n(-8), 99], M32), (&[8, M32], 0)],
    );
    table("shr.s16", &[(&[h(-8), 2], h(-2)), (&[h(-8), 16], 0xffff)]);
    table("shr.s64", &[(&[l(-8), 64], u64::MAX), (&[8, 64], 0)]);
    table(
        "shf.l.clamp.b32",
        &[
            (&[0x8765_4321, 0x1234_5678, 8], 0x3456_7887),
            (&[7, 9, 32], 7),
            (&[7, 9, 99], 7),
            (&[7, 9, 0], 9),
        ],
    );
    table(
        "shf.l.wrap.b32",
        &[(&[7, 9, 32], 9), (&[1 << 31, 9, 33], 19)],
    );
    table(
        "shf.r.clamp.b32",
        &[
            (&[0x8765_4321, 0x1234_5678, 8], 0x7887_6543),
            (&[7, 9, 32], 9),
            (&[7, 9, 99], 9),
        ],
    );
    table(
        "shf.r.wrap.b32",
        &[(&[7, 9, 32], 7), (&[7, 1, 33], 0x8000_0003)],
    );
}

#[test]
fn bit_fields() {
    table(
        "bfe.u32",
        &[
            (&[0xabcd_1234, 4, 8], 0x23),
            (&[M32, 28, 8], 0xf),
            (&[M32, 32, 8], 0),
            (&[M32, 0, 0], 0),
            (&[M32, 0, 255], M32),
        ],
    );
    table(
        "bfe.s32",
        &[
            (&[0xabcd_1294, 4, 4], n(-7)),
            (&[0x8000_0000, 28, 8], n(-8)),
            (&[0x8000_0000, 40, 8], M32),
            (&[0x8000_0000, 40, 0], 0),
            (&[0x8000_0000, 256, 32], 0x8000_0000),
        ],
    );
    table(
        "bfe.u64",
        &[(&[u64::MAX, 60, 8], 0xf), (&[u64::MAX, 0, 64], u64::MAX)],
    );
    table("bfe.s64", &[(&[1 << 63, 255, 255], u64::MAX)]);
    table(
        "bfi.b32",
        &[
            (&[0xf, 0, 4, 4], 0xf0),
            (&[0, M32, 28, 8], 0x0fff_ffff),
            (&[5, 9, 32, 4], 9),
            (&[5, 9, 0, 0], 9),
            (&[5, 9, 0, 255], 5),
        ],
    );
    table(
        "bfi.b64",
        &[(&[0xff, 0, 60, 8], 0xf << 60), (&[7, 1, 64, 1], 1)],
    );
    table("bfind.u32", &[(&[0], M32), (&[1], 0), (&[M32], 31)]);
    table(
        "bfind.s32",
        &[
            (&[0], M32),
            (&[M32], M32),
            (&[n(-2)], 0),
            (&[0x7fff_ffff], 30),
        ],
    );
    table("bfind.shiftamt.u32", &[(&[1], 31), (&[0], M32)]);
    table("bfind.shiftamt.s64", &[(&[1], 63), (&[l(i64::MIN)], 1)]);
    table("bfind.u64", &[(&[1 << 40], 40)]);
    table("popc.b32", &[(&[u64::MAX], 32), (&[0], 0)]);
    table("popc.b64", &[(&[u64::MAX], 64)]);
    table("clz.b32", &[(&[0], 32), (&[1], 31), (&[M32], 0)]);
    table("clz.b64", &[(&[0], 64), (&[1 << 32], 31)]);
    table(
        "brev.b32",
        &[(&[1], 1 << 31), (&[0x1234_5678], 0x1e6a_2c48)],
    );
    table("brev.b64", &[(&[1], 1 << 63)]);
    table(
        "fns.b32",
        &[
            (&[0b1010, 1, 0], 1),
            (&[0b1010, 0, 0], M32),
            (&[0b1010, 0, 2], 3),
            (&[0b1010, 3, n(-2)], 1),
            (&[0b1010, 0, 3], M32),
            (&[1, 40, n(-1)], M32),
        ],
    );
    table(
        "szext.wrap.s32",
        &[
            (&[0xff, 8], M32),
            (&[0x7f, 8], 0x7f),
            (&[0xff, 32], 0),
            (&[0xff, 40], M32),
        ],
    );
    table(
        "szext.clamp.s32",
        &[(&[0xabcd_00ff, 32], 0xabcd_00ff), (&[0x1ff, 8], M32)],
    );
    table(
        "szext.clamp.u32",
        &[(&[0xffff, 8], 0xff), (&[0xffff, 0], 0)],
    );
    table(
        "bmsk.clamp.b32",
        &[
            (&[4, 8], 0xff0),
            (&[28, 8], 0xf000_0000),
            (&[32, 4], 0),
            (&[0, 32], M32),
            (&[4, 40], 0xffff_fff0),
        ],
    );
    table("bmsk.wrap.b32", &[(&[36, 8], 0xff0), (&[0, 32], 0)]);
}

#[test]
fn permutations() {
    let (a, b) = (0x3322_1100, 0x7766_5544);
    table(
        "prmt.b32",
        &[
            (&[a, b, 0x3210], a),
            (&[a, b, 0x7654], b),
            (&[a, b, 0x0123], 0x0011_2233),
            (&[0x0080_7f00, 0, 0xa9], 0xff00),
            (&[0x0080_7f00, 0, 0xba98], 0x00ff_0000),
            (&[a, b, 0xffff_0000], 0),
        ],
    );
    let selected = |mode: &str| -> Vec<u64> {
        (0..4)
            .map(|c| one(&format!("prmt.b32.{mode}"), &[a, b, c + 8]))
            .collect()
    };
    assert_eq!(
        selected("f4e"),
        [0x3322_1100, 0x4433_2211, 0x5544_3322, 0x6655_4433]
    );
    assert_eq!(
        selected("b4e"),
        [0x5566_7700, 0x6677_0011, 0x7700_1122, 0x0011_2233]
    );
    assert_eq!(selected("rc8"), [0, 0x1111_1111, 0x2222_2222, 0x3333_3333]);
    assert_eq!(
        selected("ecl"),
        [0x3322_1100, 0x3322_1111, 0x3322_2222, 0x3333_3333]
    );
    assert_eq!(selected("ecr"), [0, 0x1111_1100, 0x2222_1100, 0x3322_1100]);
    assert_eq!(
        selected("rc16"),
        [0x1100_1100, 0x3322_3322, 0x1100_1100, 0x3322_3322]
    );
}

#[test]
fn comparison_and_selection() {
    assert_eq!(both("setp.lt.s32", &[n(-1), 1]), [1, 0]);
    assert_eq!(both("setp.lt.u32", &[n(-1), 1]), [0, 1]);
    assert_eq!(both("setp.lo.u32", &[1, n(-1)]), [1, 0]);
    assert_eq!(both("setp.hs.u64", &[5, 5]), [1, 0]);
    assert_eq!(both("setp.hi.u16", &[5, 5]), [0, 1]);
    assert_eq!(both("setp.ls.u16", &[5, 5]), [1, 0]);
    assert_eq!(both("setp.ge.s16", &[h(-5), h(-5)]), [1, 0]);
    assert_eq!(both("setp.gt.s64", &[1, l(-5)]), [1, 0]);
    assert_eq!(both("setp.le.s32", &[2, 1]), [0, 1]);
    assert_eq!(both("setp.ne.b32", &[1 << 32, 0]), [0, 1]);
    assert_eq!(both("setp.eq.b64", &[1 << 32, 0]), [0, 1]);
    assert_eq!(both("setp.eq.and.s32", &[1, 1, 0]), [0, 0]);
    assert_eq!(both("setp.eq.or.s32", &[1, 1, 0]), [1, 0]);
    assert_eq!(both("setp.eq.xor.s32", &[1, 1, 1]), [0, 1]);
    table("set.lt.u32.s32", &[(&[n(-1), 1], M32), (&[1, 1], 0)]);
    table("set.eq.f32.u32", &[(&[1, 1], 0x3f80_0000), (&[1, 2], 0)]);
    table("set.gt.or.s32.u64", &[(&[1, 1, 1], M32), (&[1, 1, 0], 0)]);
    table(
        "selp.b32",
        &[(&[5, 6, 1], 5), (&[5, 6, 0], 6), (&[1 << 32, 6, 3], 0)],
    );
    table("selp.f64", &[(&[5, u64::MAX, 0], u64::MAX)]);
    table("slct.u32.s32", &[(&[5, 6, 0], 5), (&[5, 6, n(-1)], 6)]);
    let (negative_zero, nan, tiny) = (0x8000_0000, 0x7fc0_0000, 0x8000_0001);
    table(
        "slct.b64.f32",
        &[
            (&[5, 6, negative_zero], 5),
            (&[5, 6, nan], 6),
            (&[5, 6, tiny], 6),
        ],
    );
    table("slct.ftz.b64.f32", &[(&[5, 6, tiny], 5)]);
}

#[test]
fn what_is_not_decoded() {
    let unknown = [
        "",
        "add",
        "add.b32",
        "add.u8",
        "add.sat.u32",
        "add.foo.u32",
        "mul.u32",
        "mul.wide.u64",
        "mul24.lo.u64",
        "abs.u32",
        "neg.u32",
        "min.relu.u32",
        "min.u32.relu",
        "add.s32.relu",
        "dp4a.u32",
        "dp4a.u64.u32",
        "addc.u16",
        "mad.wide.cc.u32",
        "and.u32",
        "cnot.pred",
        "shl.s32",
        "shr.b8",
        "shf.l.b32",
        "shf.x.wrap.b32",
        "lop3.xor.b32",
        "prmt.u32",
        "prmt.b32.x",
        "bfe.b32",
        "bfe.u16",
        "bfi.u32",
        "bfind.b32",
        "popc.u32",
        "fns.u32",
        "szext.s32",
        "bmsk.clamp.u32",
        "setp.lt.b32",
        "setp.lo.s32",
        "setp.equ.s32",
        "setp.eq.u8",
        "setp.eq.nor.s32",
        "setp.eq.ftz.s32",
        "setp.eq.pred",
        "set.eq.f64.s32",
        "set.eq.f16x2.f32",
        "selp.pred",
        "slct.b32.u32",
        "mov.b128",
        "mov.u32.u32",
        "ld.global.u32",
        "bar.sync",
        "shfl.sync.idx.b32",
        "vadd.u32.u32.u32",
        "cvt.u32",
        "cvt",
    ];
    for name in unknown {
        assert_eq!(decode(name), None, "{name}");
    }
    let add = decode("add.u32").unwrap();
    assert_eq!(
        (add.for_sources(1), add.for_sources(2), add.for_sources(3)),
        (None, Some(add), None)
    );
    let addc = decode("addc.u32").unwrap();
    assert_eq!((addc.sources(), addc.for_sources(2)), (3, Some(addc)));
}

/// Numbers with many edge cases among them.
fn bits() -> impl Strategy<Value = u64> {
    let edges = [
        0,
        1,
        2,
        0x7f,
        0x80,
        0xff,
        0x7fff,
        0x8000,
        0xffff,
        0x7fff_ffff,
        1 << 31,
        M32,
        1 << 32,
        u64::MAX >> 1,
        1 << 63,
        u64::MAX,
    ];
    prop_oneof![
        any::<u64>(),
        prop::sample::select(edges.to_vec()),
        0u64..70,
        (0u32..64).prop_map(|shift| 1 << shift)
    ]
}

fn mask(width: u32) -> u64 {
    u64::MAX >> (64 - width)
}

fn wide(value: u64, width: u32, signed: bool) -> i128 {
    let value = value & mask(width);
    if signed && value >> (width - 1) == 1 {
        i128::from(value) - (1 << width)
    } else {
        i128::from(value)
    }
}

/// `bfe` as the ISA's pseudocode has it, but for the bits that count of position and length.
fn bfe(a: u64, b: u64, c: u64, width: u32, signed: bool) -> u64 {
    let byte = if width == 64 {
        u64::from(u32::MAX)
    } else {
        0xff
    };
    let (position, length, msb) = (b & byte, c & byte, u64::from(width) - 1);
    let sign = if !signed || length == 0 {
        0
    } else {
        a >> (position + length - 1).min(msb) & 1
    };
    (0..=msb).fold(0, |d, i| {
        let bit = if i < length && position + i <= msb {
            a >> (position + i) & 1
        } else {
            sign
        };
        d | bit << i
    })
}

/// `bfi` likewise.
fn bfi(a: u64, b: u64, c: u64, d: u64, width: u32) -> u64 {
    let byte = if width == 64 {
        u64::from(u32::MAX)
    } else {
        0xff
    };
    let (position, length, msb) = (c & byte, d & byte, u64::from(width) - 1);
    (0..length)
        .take_while(|i| position + i <= msb)
        .fold(b & mask(width), |f, i| {
            let at = position + i;
            f & !(1 << at) | (a >> i & 1) << at
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn against_wide_arithmetic(a in bits(), b in bits(), c in bits()) {
        for (signed, width) in [(false, 16u32), (true, 16), (false, 32), (true, 32), (false, 64), (true, 64)] {
            let ty = format!("{}{width}", if signed { 's' } else { 'u' });
            let [x, y, z] = [a, b, c].map(|value| wide(value, width, signed));
            // A product of two u64 may pass i128's end, its bits do not.
            let product = x.wrapping_mul(y);
            let high = if signed || width < 64 { product >> width } else { ((product as u128) >> 64) as i128 };
            let check = |name: &str, sources: &[u64], expected: i128, width: u32| {
                let name = format!("{name}.{ty}");
                prop_assert_eq!(one(&name, sources), expected as u64 & mask(width), "{} {:x?}", name, sources);
                Ok(())
            };
            check("add", &[a, b], x.wrapping_add(y), width)?;
            check("sub", &[a, b], x.wrapping_sub(y), width)?;
            check("mul.lo", &[a, b], product, width)?;
            check("mul.hi", &[a, b], high, width)?;
            check("mad.lo", &[a, b, c], product.wrapping_add(z), width)?;
            check("mad.hi", &[a, b, c], high.wrapping_add(z), width)?;
            check("min", &[a, b], x.min(y), width)?;
            check("max", &[a, b], x.max(y), width)?;
            check("sad", &[a, b, c], (x - y).abs().wrapping_add(z), width)?;
            check("div", &[a, b], if y == 0 { -1 } else { x / y }, width)?;
            check("rem", &[a, b], if y == 0 { -1 } else { x % y }, width)?;
            if width < 64 {
                let addend = wide(c, 2 * width, signed);
                check("mul.wide", &[a, b], product, 2 * width)?;
                check("mad.wide", &[a, b, c], product.wrapping_add(addend), 2 * width)?;
            }
            if width >= 32 {
                let sum = wide(a, width, false) + wide(b, width, false);
                let expected = [sum as u64 & mask(width), (sum >> width) as u64];
                prop_assert_eq!(both(&format!("add.cc.{ty}"), &[a, b]), expected);
                for (name, operands, borrow) in [
                    ("subc", vec![a, b, 0], 1),
                    ("subc", vec![a, b, 1], 0),
                    ("sub", vec![a, b], 0),
                ] {
                    let difference = wide(a, width, false) - wide(b, width, false) - borrow;
                    let expected = [difference as u64 & mask(width), u64::from(difference >= 0)];
                    prop_assert_eq!(both(&format!("{name}.cc.{ty}"), &operands), expected);
                }
                prop_assert_eq!(one(&format!("bfe.{ty}"), &[a, b, c]), bfe(a & mask(width), b, c, width, signed));
            }
            let shift = (b & M32).min(127) as u32;
            check("shr", &[a, b], x >> shift, width)?;
        }
    }

    #[test]
    fn bits_against_pseudocode(a in bits(), b in bits(), c in bits(), d in bits()) {
        prop_assert_eq!(one("bfi.b32", &[a, b, c, d]), bfi(a, b, c, d, 32));
        prop_assert_eq!(one("bfi.b64", &[a, b, c, d]), bfi(a, b, c, d, 64));
        let table = d & 0xff;
        let expected = (0..32).fold(0, |result, at| {
            let index = (a >> at & 1) << 2 | (b >> at & 1) << 1 | (c >> at & 1);
            result | (table >> index & 1) << at
        });
        prop_assert_eq!(one("lop3.b32", &[a, b, c, table]), expected);
        let bytes: Vec<u8> = (a as u32).to_le_bytes().into_iter().chain((b as u32).to_le_bytes()).collect();
        let expected = (0..4).fold(0u64, |result, at| {
            let selector = (c >> (4 * at)) as usize & 0xf;
            let byte = bytes[selector & 7];
            let byte = if selector < 8 { byte } else if byte >= 0x80 { 0xff } else { 0 };
            result | u64::from(byte) << (8 * at)
        });
        prop_assert_eq!(one("prmt.b32", &[a, b, c]), expected);
        let amount = c as u32 & 31;
        let expected = ((b as u32) << amount) | ((a as u32).checked_shr(32 - amount).unwrap_or(0));
        prop_assert_eq!(one("shf.l.wrap.b32", &[a, b, c]), u64::from(expected));
        let expected = (a as u32 >> amount) | ((b as u32).checked_shl(32 - amount).unwrap_or(0));
        prop_assert_eq!(one("shf.r.wrap.b32", &[a, b, c]), u64::from(expected));
    }

    /// A warp with different values in each lane.
    #[test]
    fn lanes_are_independent(seed in any::<u64>(), mask in any::<u32>()) {
        use warpbpf_ptx::eval::{eval, eval_lanes};
        let row = |salt: u64| std::array::from_fn::<u64, 32, _>(|lane| (seed ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(lane as u32 * 7));
        let (a, b, c) = (row(1), row(2), row(3));
        for name in ["add.u32", "mad.lo.s64", "fma.rn.f32", "setp.lt.s32", "selp.b32", "shr.s64", "cvt.s16.u64", "add.rz.f64"] {
            let op = decode(name).unwrap();
            let mut dst = [5; 32];
            eval_lanes(op, &mut dst, &a, &b, &c, mask);
            for lane in 0..32 {
                let expected = if mask >> lane & 1 == 1 { eval(op, &[a[lane], b[lane], c[lane]])[0] } else { 5 };
                prop_assert_eq!(dst[lane], expected, "{} lane {}", name, lane);
            }
        }
    }
}

//! Floating point operations: edge cases by hand, rounding to nearest against the host, directed
//! rounding against the interval it must be in, the narrow formats against `half`.

use crate::common::{both, decode, one, table};
use half::{bf16, f16};
use proptest::prelude::*;
use warpbpf_ptx::eval::{Op, eval};

const NAN32: u64 = 0x7fff_ffff;
const NAN64: u64 = 0xfff8_0000_0000_0000;
const NAN16: u64 = 0x7fff;

fn s(value: f32) -> u64 {
    value.to_bits().into()
}

fn d(value: f64) -> u64 {
    value.to_bits()
}

fn h(value: f32) -> u64 {
    f16::from_f32(value).to_bits().into()
}

fn b(value: f32) -> u64 {
    bf16::from_f32(value).to_bits().into()
}

#[test]
fn single_arithmetic() {
    let (inf, tiny, max) = (s(f32::INFINITY), 1, s(f32::MAX));
    table(
        "add.f32",
        &[
            (&[s(1.5), s(2.25)], s(3.75)),
            (&[inf, s(-f32::INFINITY)], NAN32),
            (&[0x7f80_0001, 0], NAN32),
            (&[max, max], inf),
        ],
    );
    table(
        "add.f32",
        &[
            (&[s(0.0), s(-0.0)], 0),
            (&[s(-0.0), s(-0.0)], s(-0.0)),
            (&[s(1.0), s(-1.0)], 0),
        ],
    );
    table(
        "add.rm.f32",
        &[
            (&[s(1.0), s(-1.0)], s(-0.0)),
            (&[s(0.0), s(-0.0)], s(-0.0)),
            (&[0, 0], 0),
            (&[max, max], max),
        ],
    );
    table(
        "add.rp.f32",
        &[
            (&[s(1.0), tiny], s(1.0f32.next_up())),
            (&[max, tiny], inf),
            (&[s(-f32::MAX), s(-f32::MAX)], s(-f32::MAX)),
        ],
    );
    table(
        "add.rz.f32",
        &[
            (&[s(1.0), s(-1e-30)], s(1.0f32.next_down())),
            (&[max, max], max),
            (&[s(-1.0), s(1e-30)], s((-1.0f32).next_up())),
        ],
    );
    table("sub.rn.f32", &[(&[s(1.0), s(3.0)], s(-2.0)), (&[0, 0], 0)]);
    table(
        "mul.f32",
        &[
            (&[inf, 0], NAN32),
            (&[tiny, s(0.5)], 0),
            (&[tiny, s(1.5)], 2),
            (&[s(-1.0), 0], s(-0.0)),
        ],
    );
    table(
        "mul.rp.f32",
        &[
            (&[tiny, s(0.5)], 1),
            (&[tiny, s(-0.5)], s(-0.0)),
            (&[max, s(1.5)], inf),
        ],
    );
    table(
        "mul.rm.f32",
        &[(&[tiny, s(-0.5)], 0x8000_0001), (&[max, s(1.5)], max)],
    );
    table(
        "add.ftz.f32",
        &[
            (&[tiny, tiny], 0),
            (&[0x8000_0001, 0x8000_0001], s(-0.0)),
            (&[0x0080_0000, 0x8000_0001], 0x0080_0000),
        ],
    );
    table(
        "mul.ftz.f32",
        &[
            (&[s(1e-30), s(1e-10)], 0),
            (&[s(-1e-30), s(1e-10)], s(-0.0)),
        ],
    );
    table(
        "add.sat.f32",
        &[
            (&[s(0.5), s(0.75)], s(1.0)),
            (&[s(0.5), s(-0.75)], 0),
            (&[NAN32, 0], 0),
            (&[s(0.25), s(0.25)], s(0.5)),
        ],
    );
    table("mul.rz.ftz.sat.f32", &[(&[s(3.0), s(3.0)], s(1.0))]);
    table(
        "fma.rn.f32",
        &[
            (&[s(2.0), s(3.0), s(4.0)], s(10.0)),
            (&[inf, 0, NAN32], NAN32),
            (&[inf, s(1.0), s(-f32::INFINITY)], NAN32),
        ],
    );
    // The product alone would round to 1.
    let near_one = (s(1.0f32.next_up()), s(1.0f32.next_down()));
    table(
        "fma.rn.f32",
        &[(
            &[near_one.0, near_one.1, s(-1.0)],
            s(2f32.powi(-24) - 2f32.powi(-47)),
        )],
    );
    table(
        "fma.rm.f32",
        &[
            (&[s(1.0), s(1.0), s(-1.0)], s(-0.0)),
            (&[s(1.0), s(1.0), s(-1e-30)], s(1.0f32.next_down())),
        ],
    );
    table(
        "mad.rp.f32",
        &[(&[s(1.0), s(1.0), s(1e-30)], s(1.0f32.next_up()))],
    );
    table(
        "div.rn.f32",
        &[
            (&[s(1.0), s(3.0)], s(1.0 / 3.0)),
            (&[s(1.0), 0], inf),
            (&[0, 0], NAN32),
            (&[s(-1.0), 0], s(-f32::INFINITY)),
        ],
    );
    table(
        "div.rp.f32",
        &[
            (&[s(1.0), s(3.0)], s(1.0 / 3.0)),
            (&[s(1.0), inf], 0),
            (&[s(2.0), s(3.0)], 0x3f2a_aaab),
        ],
    );
    table(
        "div.rm.f32",
        &[
            (&[s(1.0), s(3.0)], 0x3eaa_aaaa),
            (&[s(2.0), s(3.0)], 0x3f2a_aaaa),
            (&[s(-2.0), s(3.0)], 0xbf2a_aaab),
        ],
    );
    table(
        "div.full.ftz.f32",
        &[(&[s(6.0), s(3.0)], s(2.0)), (&[s(1.0), tiny], inf)],
    );
    table("div.approx.f32", &[(&[s(6.0), s(3.0)], s(2.0))]);
    table(
        "rcp.rn.f32",
        &[
            (&[s(4.0)], s(0.25)),
            (&[s(-0.0)], s(-f32::INFINITY)),
            (&[inf], 0),
        ],
    );
    table("rcp.rz.f32", &[(&[s(3.0)], 0x3eaa_aaaa)]);
    table("rcp.approx.ftz.f32", &[(&[tiny], inf), (&[max], 0)]);
    table(
        "sqrt.rn.f32",
        &[
            (&[s(2.0)], s(2f32.sqrt())),
            (&[s(-0.0)], s(-0.0)),
            (&[s(-1.0)], NAN32),
        ],
    );
    table(
        "sqrt.rp.f32",
        &[(&[s(2.0)], 0x3fb5_04f4), (&[s(4.0)], s(2.0)), (&[inf], inf)],
    );
    table(
        "sqrt.rm.f32",
        &[(&[s(2.0)], 0x3fb5_04f3), (&[1], 0x1a35_04f3)],
    );
    table("sqrt.approx.ftz.f32", &[(&[s(9.0)], s(3.0)), (&[tiny], 0)]);
    table(
        "rsqrt.approx.f32",
        &[
            (&[s(4.0)], s(0.5)),
            (&[0], inf),
            (&[s(-0.0)], s(-f32::INFINITY)),
            (&[s(-1.0)], NAN32),
        ],
    );
    table(
        "sin.approx.f32",
        &[
            (&[0], 0),
            (&[s(1.0)], s(1f64.sin() as f32)),
            (&[inf], NAN32),
        ],
    );
    table("cos.approx.ftz.f32", &[(&[0], s(1.0)), (&[tiny], s(1.0))]);
    table(
        "lg2.approx.f32",
        &[
            (&[s(8.0)], s(3.0)),
            (&[0], s(-f32::INFINITY)),
            (&[s(-1.0)], NAN32),
            (&[1], s(-149.0)),
        ],
    );
    table(
        "ex2.approx.f32",
        &[
            (&[s(3.0)], s(8.0)),
            (&[s(-149.0)], 1),
            (&[s(200.0)], inf),
            (&[s(-f32::INFINITY)], 0),
        ],
    );
    table("ex2.approx.ftz.f32", &[(&[s(-149.0)], 0)]);
    table(
        "tanh.approx.f32",
        &[(&[inf], s(1.0)), (&[s(-0.0)], s(-0.0))],
    );
    table("neg.f32", &[(&[s(1.0)], s(-1.0)), (&[0], s(-0.0))]);
    table("neg.ftz.f32", &[(&[tiny], s(-0.0))]);
    table("abs.f32", &[(&[s(-1.0)], s(1.0))]);
    table("abs.ftz.f32", &[(&[0x8000_0001], 0)]);
    table(
        "copysign.f32",
        &[(&[s(-1.0), s(3.0)], s(-3.0)), (&[s(1.0), s(-3.0)], s(3.0))],
    );
}

#[test]
fn double_arithmetic() {
    let (inf, max) = (d(f64::INFINITY), d(f64::MAX));
    table(
        "add.f64",
        &[
            (&[d(1.5), d(2.25)], d(3.75)),
            (&[inf, d(-f64::INFINITY)], NAN64),
        ],
    );
    // The last NaN is passed on and made quiet.
    table(
        "add.f64",
        &[
            (
                &[0x7ff0_0000_0000_0001, 0x7ff8_0000_0000_0002],
                0x7ff8_0000_0000_0002,
            ),
            (&[0xfff0_0000_0000_0002, 0], 0xfff8_0000_0000_0002),
        ],
    );
    table(
        "fma.rn.f64",
        &[
            (
                &[0x7ff8_0000_0000_0001, 0x7ff8_0000_0000_0002, 0],
                0x7ff8_0000_0000_0002,
            ),
            (&[0x7ff8_0000_0000_0001, 0, NAN64], NAN64),
            (&[0, 0x7ff8_0000_0000_0002, NAN64], 0x7ff8_0000_0000_0002),
        ],
    );
    table("neg.f64", &[(&[NAN64], NAN64)]);
    table("abs.f64", &[(&[NAN64], NAN64)]);
    table("rcp.approx.ftz.f64", &[(&[NAN64], 0x7fff_ffff_0000_0000)]);
    table("neg.f32", &[(&[0x7f80_0001], NAN32)]);
    table("abs.f16", &[(&[0xfe00], NAN16)]);
    table(
        "div.approx.f32",
        &[
            (&[s(-1.0), s(2f32.powi(127))], s(-0.0)),
            (&[s(2.0), s(2f32.powi(126))], s(2f32.powi(-125))),
            (&[s(f32::INFINITY), s(2f32.powi(127))], NAN32),
        ],
    );
    table("cvt.f64.f16", &[(&[0xfff3], 0xffff_cc00_0000_0000)]);
    table("cvt.f32.bf16", &[(&[0xfff3], 0xfff3_0000)]);
    table("cvt.rn.f16.f64", &[(&[0x7ffd_312b_6d45_7c5b], 0x7f4c)]);
    table(
        "cvt.rna.tf32.f32",
        &[(&[0xffff_fff3], 0xffff_e000), (&[0xffa0_0001], 0xffa0_0000)],
    );
    table(
        "div.rn.f64",
        &[(
            &[0x7ff8_0000_0000_0001, 0x7ff8_0000_0000_0002],
            0x7ff8_0000_0000_0001,
        )],
    );
    table("rcp.approx.ftz.f64", &[(&[0x7ff0_0000_0000_0001], 0)]);
    table("cvt.rn.tf32.f32", &[(&[0xffff_fff3], 0x7fff_e000)]);
    table(
        "add.rz.f64",
        &[(&[0, 0xfff0_0000_0000_0002], 0xfff8_0000_0000_0002)],
    );
    table(
        "add.rp.f64",
        &[(&[d(1.0), 1], d(1.0f64.next_up())), (&[max, 1], inf)],
    );
    table(
        "add.rm.f64",
        &[
            (&[d(1.0), d(-1.0)], d(-0.0)),
            (&[d(1.0), 1], d(1.0)),
            (&[d(1.0), 1 | 1 << 63], d(1.0f64.next_down())),
        ],
    );
    table("mul.rp.f64", &[(&[1, 1], 1), (&[max, max], inf)]);
    table("mul.rz.f64", &[(&[1, 1], 0), (&[max, max], max)]);
    table(
        "fma.rn.f64",
        &[(&[d(2.0), d(3.0), d(4.0)], d(10.0)), (&[inf, 0, 0], NAN64)],
    );
    table(
        "fma.rz.f64",
        &[
            (&[d(1.0), d(1.0), 1 | 1 << 63], d(1.0f64.next_down())),
            (&[max, d(2.0), d(-f64::MAX)], max),
        ],
    );
    // Cancellation down to the product's last bit.
    let up = 1.0 + f64::EPSILON;
    table(
        "fma.rm.f64",
        &[(
            &[d(up), d(up), d(-(1.0 + 2.0 * f64::EPSILON))],
            d(f64::EPSILON * f64::EPSILON),
        )],
    );
    table("div.rm.f64", &[(&[d(1.0), d(3.0)], 0x3fd5_5555_5555_5555)]);
    table(
        "div.rp.f64",
        &[
            (&[d(1.0), d(3.0)], 0x3fd5_5555_5555_5556),
            (&[1, d(2.0)], 1),
        ],
    );
    table("rcp.rp.f64", &[(&[d(3.0)], 0x3fd5_5555_5555_5556)]);
    table(
        "sqrt.rm.f64",
        &[
            (&[d(2.0)], 0x3ff6_a09e_667f_3bcc),
            (&[d(9.0)], d(3.0)),
            (&[1], d(2f64.powi(-537))),
        ],
    );
    table(
        "sqrt.rp.f64",
        &[(&[d(2.0)], 0x3ff6_a09e_667f_3bcd), (&[d(-2.0)], NAN64)],
    );
    table(
        "rcp.approx.ftz.f64",
        &[
            (&[d(4.0)], d(0.25)),
            (&[d(3.0)], 0x3fd5_5555_0000_0000),
            (&[1], inf),
        ],
    );
    table(
        "rsqrt.approx.ftz.f64",
        &[(&[d(16.0)], d(0.25)), (&[d(-1.0)], 0x7fff_ffff_0000_0000)],
    );
    table("rsqrt.approx.f64", &[(&[d(16.0)], d(0.25))]);
    table("neg.f64", &[(&[d(1.0)], d(-1.0))]);
    table("abs.f64", &[(&[d(-1.0)], d(1.0))]);
    table("copysign.f64", &[(&[d(-1.0), d(3.0)], d(-3.0))]);
}

#[test]
fn extrema() {
    table(
        "min.f32",
        &[
            (&[0, s(-0.0)], s(-0.0)),
            (&[s(-0.0), 0], s(-0.0)),
            (&[NAN32, s(1.0)], s(1.0)),
            (&[s(1.0), 0x7fc0_0000], s(1.0)),
        ],
    );
    table(
        "min.f32",
        &[
            (&[0xffc0_0000, 0x7fc0_0000], NAN32),
            (&[s(-2.0), s(-1.0)], s(-2.0)),
            (&[s(-f32::INFINITY), s(1.0)], s(-f32::INFINITY)),
        ],
    );
    table(
        "max.f32",
        &[
            (&[0, s(-0.0)], 0),
            (&[s(-0.0), 0], 0),
            (&[s(-2.0), s(-1.0)], s(-1.0)),
            (&[s(-2.0), s(1.0)], s(1.0)),
        ],
    );
    table(
        "max.NaN.f32",
        &[(&[0x7fc0_0000, s(1.0)], NAN32), (&[s(3.0), s(1.0)], s(3.0))],
    );
    table("min.ftz.f32", &[(&[1, s(1.0)], 0)]);
    table(
        "min.xorsign.abs.f32",
        &[(&[s(-2.0), s(1.0)], s(-1.0)), (&[s(-2.0), s(-3.0)], s(2.0))],
    );
    table(
        "max.ftz.NaN.xorsign.abs.f32",
        &[(&[s(-2.0), s(1.0)], s(-2.0))],
    );
    table(
        "max.f32",
        &[
            (&[s(1.0), s(3.0), s(2.0)], s(3.0)),
            (&[NAN32, NAN32, s(2.0)], s(2.0)),
        ],
    );
    table("min.NaN.f32", &[(&[s(1.0), s(3.0), NAN32], NAN32)]);
    table(
        "min.f64",
        &[
            (&[d(1.0), NAN64], d(1.0)),
            (&[NAN64, NAN64], NAN64),
            (&[d(-0.0), 0], d(-0.0)),
        ],
    );
    table(
        "max.f16",
        &[(&[h(1.0), h(-2.0)], h(1.0)), (&[0x7e01, 0x7e01], NAN16)],
    );
    table(
        "min.NaN.bf16x2",
        &[(
            &[b(1.0) << 16 | 0x7fc0, b(-2.0) << 16],
            b(-2.0) << 16 | NAN16,
        )],
    );
    assert_eq!(decode("min.f64").unwrap().for_sources(3), None);
    assert_eq!(decode("min.xorsign.abs.f32").unwrap().for_sources(3), None);
}

#[test]
fn half_arithmetic() {
    table(
        "add.f16",
        &[
            (&[h(1.0), h(2.0)], h(3.0)),
            (&[h(65504.0), h(65504.0)], 0x7c00),
            (&[0x7c00, 0xfc00], NAN16),
            (&[1, 1], 2),
        ],
    );
    table("add.ftz.f16", &[(&[1, 1], 0)]);
    table(
        "add.sat.f16",
        &[(&[h(1.0), h(2.0)], h(1.0)), (&[h(-1.0), 0], 0)],
    );
    table("sub.rn.f16", &[(&[h(1.0), h(2.0)], h(-1.0))]);
    table(
        "mul.f16x2",
        &[(
            &[h(2.0) << 16 | h(3.0), h(4.0) << 16 | h(-5.0)],
            h(8.0) << 16 | h(-15.0),
        )],
    );
    table(
        "fma.rn.f16",
        &[
            (&[h(2.0), h(3.0), h(4.0)], h(10.0)),
            (&[0x3c01, 0x3c01, h(-1.0)], 0x1800),
        ],
    );
    table(
        "fma.rn.relu.f16",
        &[
            (&[h(2.0), h(3.0), h(-7.0)], 0),
            (&[h(2.0), h(3.0), h(-5.0)], h(1.0)),
            (&[0x7e00, 0, 0], NAN16),
        ],
    );
    table("fma.rn.bf16", &[(&[b(2.0), b(3.0), b(4.0)], b(10.0))]);
    table(
        "fma.rn.bf16x2",
        &[(
            &[b(2.0) << 16 | b(1.0), b(3.0) << 16 | b(1.0), b(4.0) << 16],
            b(10.0) << 16 | b(1.0),
        )],
    );
    table(
        "add.bf16",
        &[
            (&[b(1.0), b(0.00390625)], b(1.0)),
            (&[0x3f81, b(0.00390625)], 0x3f82),
            (&[0x7f80, 0xff80], NAN16),
        ],
    );
    table(
        "mul.bf16",
        &[(&[0x0001, b(0.5)], 0), (&[0x0001, b(0.75)], 1)],
    );
    table(
        "neg.f16x2",
        &[(&[h(1.0) << 16 | h(-1.0)], h(-1.0) << 16 | h(1.0))],
    );
    table(
        "abs.bf16x2",
        &[(&[b(-1.0) << 16 | b(1.0)], b(1.0) << 16 | b(1.0))],
    );
    table("ex2.approx.f16", &[(&[h(3.0)], h(8.0))]);
    table(
        "ex2.approx.ftz.bf16x2",
        &[(&[b(3.0) << 16], b(8.0) << 16 | b(1.0))],
    );
    table("tanh.approx.f16x2", &[(&[0x7c00_0000], h(1.0) << 16)]);
    table("tanh.approx.bf16", &[(&[b(-100.0)], b(-1.0))]);
}

#[test]
fn comparisons() {
    let nan = 0x7fc0_0000;
    for (name, less, equal, greater, unordered) in [
        ("eq", 0, 1, 0, 0),
        ("ne", 1, 0, 1, 0),
        ("lt", 1, 0, 0, 0),
        ("le", 1, 1, 0, 0),
        ("gt", 0, 0, 1, 0),
        ("ge", 0, 1, 1, 0),
        ("equ", 0, 1, 0, 1),
        ("neu", 1, 0, 1, 1),
        ("ltu", 1, 0, 0, 1),
        ("leu", 1, 1, 0, 1),
        ("gtu", 0, 0, 1, 1),
        ("geu", 0, 1, 1, 1),
        ("num", 1, 1, 1, 0),
        ("nan", 0, 0, 0, 1),
    ] {
        let check = |ty: &str, a: u64, b: u64, expected: u64| {
            assert_eq!(
                both(&format!("setp.{name}.{ty}"), &[a, b]),
                [expected, 1 - expected],
                "{name} {ty} {a:x} {b:x}"
            );
        };
        check("f32", s(-1.0), s(1.0), less);
        check("f32", 0, s(-0.0), equal);
        check("f32", s(-1.0), s(-2.0), greater);
        check("f32", s(1.0), nan, unordered);
        check("f64", d(1.0), d(1.0f64.next_up()), less);
        check("f64", NAN64, NAN64, unordered);
        check("f16", h(1.0), h(1.0), equal);
        check("f16", 0x7c00, 0x7bff, greater);
        check("bf16", 0x7fc0, b(1.0), unordered);
    }
    assert_eq!(both("setp.lt.ftz.f32", &[0x8000_0001, 0]), [0, 1]);
    assert_eq!(both("setp.lt.f32", &[0x8000_0001, 0]), [1, 0]);
    assert_eq!(both("setp.lt.and.ftz.f32", &[s(1.0), s(2.0), 1]), [1, 0]);
    // Both halves, not a complement.
    assert_eq!(
        both(
            "setp.lt.f16x2",
            &[h(1.0) << 16 | h(1.0), h(2.0) << 16 | h(2.0)]
        ),
        [1, 1]
    );
    assert_eq!(
        both(
            "setp.eq.xor.bf16x2",
            &[b(1.0) << 16, b(1.0) << 16 | b(3.0), 1]
        ),
        [1, 0]
    );
    table(
        "set.lt.u32.f32",
        &[(&[s(1.0), s(2.0)], 0xffff_ffff), (&[s(1.0), nan], 0)],
    );
    table("set.ltu.f32.f64", &[(&[d(1.0), NAN64], s(1.0))]);
    table("set.eq.f16.f16", &[(&[h(1.0), h(1.0)], h(1.0))]);
    table("set.ne.u16.bf16", &[(&[b(1.0), b(2.0)], 0xffff)]);
    table(
        "set.ne.f16x2.f16x2",
        &[(&[h(1.0) << 16, h(2.0) << 16], h(1.0) << 16)],
    );
    for (property, expected) in [
        ("finite", [1, 1, 1, 0, 0]),
        ("infinite", [0, 0, 0, 1, 0]),
        ("number", [1, 1, 1, 1, 0]),
        ("notanumber", [0, 0, 0, 0, 1]),
        ("normal", [1, 1, 0, 0, 0]),
        ("subnormal", [0, 0, 1, 0, 0]),
    ] {
        let found = [s(1.0), s(-0.0), 1, s(f32::INFINITY), NAN32]
            .map(|bits| one(&format!("testp.{property}.f32"), &[bits]));
        assert_eq!(found, expected, "{property}");
        let found = [d(1.0), d(-0.0), 1, d(f64::INFINITY), NAN64]
            .map(|bits| one(&format!("testp.{property}.f64"), &[bits]));
        assert_eq!(found, expected, "{property}");
    }
}

#[test]
fn integer_conversions() {
    table("cvt.u32.u16", &[(&[0x1_2345], 0x2345)]);
    table("cvt.s32.s8", &[(&[0x80], 0xffff_ff80), (&[0x17f], 0x7f)]);
    table("cvt.u64.s32", &[(&[0xffff_ffff], u64::MAX)]);
    table("cvt.s64.u32", &[(&[0xffff_ffff], 0xffff_ffff)]);
    table("cvt.u16.u64", &[(&[0x1_2345], 0x2345)]);
    table("cvt.u8.u32", &[(&[0x1ff], 0xff)]);
    // Signed results narrower than the registers they go to are extended.
    table("cvt.s8.s32", &[(&[0x180], 0xffff_ffff_ffff_ff80)]);
    table("cvt.s16.s64", &[(&[0x8000], 0xffff_ffff_ffff_8000)]);
    table("cvt.s32.s64", &[(&[0x1_8000_0000], 0x8000_0000)]);
    table(
        "cvt.sat.u8.s32",
        &[(&[300], 255), (&[0xffff_ffff], 0), (&[7], 7)],
    );
    table(
        "cvt.sat.s8.s32",
        &[
            (&[300], 127),
            (&[(-300i32) as u32 as u64], 0xffff_ffff_ffff_ff80),
        ],
    );
    table("cvt.sat.s32.u64", &[(&[u64::MAX], 0x7fff_ffff)]);
    table("cvt.sat.u64.s64", &[(&[u64::MAX], 0)]);
    table("cvt.sat.s64.u64", &[(&[u64::MAX], u64::MAX >> 1)]);
    table(
        "cvt.pack.sat.u16.s32",
        &[(&[70000, 0xffff_ffff], 0xffff_0000), (&[1, 2], 0x1_0002)],
    );
    table("cvt.pack.sat.s16.s32", &[(&[70000, 5], 0x7fff_0005)]);
    table(
        "cvt.pack.sat.u8.s32.b32",
        &[(&[300, 5, 0xabcd_1234], 0x1234_ff05)],
    );
    table(
        "cvt.pack.sat.s8.s32.b32",
        &[(&[300, 0xffff_0000, 0x1], 0x1_7f80)],
    );
    table("cvt.pack.sat.u4.s32.b32", &[(&[300, 5, 0xab], 0xabf5)]);
    table(
        "cvt.pack.sat.s2.s32.b32",
        &[(&[9, 0xffff_ff00, 0xab], 0xab6)],
    );
}

#[test]
fn conversions_to_integers() {
    table(
        "cvt.rni.s32.f32",
        &[
            (&[s(2.5)], 2),
            (&[s(3.5)], 4),
            (&[s(-2.5)], 0xffff_fffe),
            (&[s(3e9)], 0x7fff_ffff),
            (&[s(-3e9)], 0x8000_0000),
        ],
    );
    table(
        "cvt.rzi.s32.f32",
        &[(&[s(-2.9)], 0xffff_fffe), (&[NAN32], 0)],
    );
    table("cvt.rmi.s32.f32", &[(&[s(-2.1)], 0xffff_fffd)]);
    table(
        "cvt.rpi.u32.f32",
        &[
            (&[s(2.1)], 3),
            (&[s(-5.0)], 0),
            (&[s(5e9)], 0xffff_ffff),
            (&[1], 1),
        ],
    );
    table("cvt.rpi.ftz.u32.f32", &[(&[1], 0)]);
    table(
        "cvt.rzi.u64.f32",
        &[
            (&[s(1e30)], u64::MAX),
            (&[NAN32], 1 << 63),
            (&[s(f32::INFINITY)], u64::MAX),
        ],
    );
    table(
        "cvt.rzi.s64.f32",
        &[(&[NAN32], 1 << 63), (&[s(-1e30)], 1 << 63)],
    );
    table(
        "cvt.rzi.s32.f64",
        &[
            (&[NAN64], 0x8000_0000),
            (&[d(-1e300)], 0x8000_0000),
            (&[d(2147483647.9)], 0x7fff_ffff),
        ],
    );
    table("cvt.rzi.u32.f64", &[(&[NAN64], 0x8000_0000)]);
    table(
        "cvt.rni.s64.f64",
        &[
            (&[d(4503599627370497.5)], 4503599627370498),
            (&[d(f64::INFINITY)], u64::MAX >> 1),
        ],
    );
    table("cvt.rzi.u8.f32", &[(&[s(300.0)], 255), (&[s(-1.0)], 0)]);
    table("cvt.rzi.s8.f32", &[(&[s(-300.0)], 0xffff_ffff_ffff_ff80)]);
    table("cvt.rzi.sat.u16.f64", &[(&[d(1e9)], 0xffff)]);
    table(
        "cvt.rni.s16.f16",
        &[(&[h(1.5)], 2), (&[0x7c00], 0x7fff), (&[0x7e00], 0)],
    );
    table("cvt.rzi.u64.f16", &[(&[0x7c00], u64::MAX), (&[h(5.5)], 5)]);
    table("cvt.rmi.s32.bf16", &[(&[b(-1.5)], 0xffff_fffe)]);
}

#[test]
fn conversions_to_floats() {
    table(
        "cvt.rn.f32.s32",
        &[
            (&[0xffff_ffff], s(-1.0)),
            (&[16777217], s(16777216.0)),
            (&[16777219], s(16777220.0)),
        ],
    );
    table("cvt.rz.f32.u32", &[(&[0xffff_ffff], 0x4f7f_ffff)]);
    table("cvt.rp.f32.u32", &[(&[0xffff_ffff], 0x4f80_0000)]);
    table(
        "cvt.rm.f32.s64",
        &[(&[(-16777217i64) as u64], s(-16777218.0)), (&[0], 0)],
    );
    table(
        "cvt.rn.f32.u64",
        &[
            (&[u64::MAX], s(18446744073709551616.0)),
            (&[0x8000_0080_0000_0001], 0x5f00_0001),
        ],
    );
    table(
        "cvt.rn.f64.u64",
        &[(&[u64::MAX], d(18446744073709551616.0))],
    );
    table(
        "cvt.rz.f64.s64",
        &[(&[i64::MAX as u64], d(9223372036854774784.0))],
    );
    table("cvt.rn.f64.s32", &[(&[0x8000_0000], d(-2147483648.0))]);
    table("cvt.rn.f64.s8", &[(&[0xff], d(-1.0))]);
    table(
        "cvt.rn.f16.s32",
        &[
            (&[65504], h(65504.0)),
            (&[65520], 0x7c00),
            (&[65519], 0x7bff),
            (&[0x8000_0000], 0xfc00),
        ],
    );
    table("cvt.rz.f16.u32", &[(&[0xffff_ffff], 0x7bff)]);
    table("cvt.rn.bf16.u16", &[(&[257], b(256.0))]);
    table("cvt.rn.sat.f32.s32", &[(&[5], s(1.0)), (&[0xffff_ffff], 0)]);
    table(
        "cvt.f64.f32",
        &[
            (&[s(1.5)], d(1.5)),
            (&[1], d(2f64.powi(-149))),
            (&[0xffc0_1234], 0xfff8_0246_8000_0000),
        ],
    );
    table(
        "cvt.ftz.f64.f32",
        &[
            (&[0x8000_0001], d(-0.0)),
            (&[0x7f80_0001], 0x7fff_ffff_e000_0000),
        ],
    );
    table(
        "cvt.rn.f32.f64",
        &[
            (&[d(1.0 + f64::EPSILON)], s(1.0)),
            (&[d(1e300)], s(f32::INFINITY)),
            (&[NAN64], 0xffc0_0000),
            (&[0x7ffd_312b_6d45_7c5b], 0x7fe9_895b),
            (&[d(-1e-300)], s(-0.0)),
        ],
    );
    table(
        "cvt.rp.f32.f64",
        &[
            (&[d(1.0 + f64::EPSILON)], s(1.0f32.next_up())),
            (&[1], 1),
            (&[d(-1e300)], s(-f32::MAX)),
        ],
    );
    table(
        "cvt.rm.f32.f64",
        &[
            (&[d(-1e-300)], 0x8000_0001),
            (&[d(-1e300)], s(-f32::INFINITY)),
        ],
    );
    table("cvt.rz.sat.f32.f64", &[(&[d(7.0)], s(1.0)), (&[NAN64], 0)]);
    table("cvt.rn.ftz.f32.f64", &[(&[d(1e-40)], 0)]);
    table(
        "cvt.rni.f32.f32",
        &[
            (&[s(2.5)], s(2.0)),
            (&[s(-0.4)], s(-0.0)),
            (&[s(f32::INFINITY)], s(f32::INFINITY)),
        ],
    );
    table(
        "cvt.rpi.f64.f64",
        &[
            (&[d(2.1)], d(3.0)),
            (&[0x7ff0_0000_0000_0001], 0x7ff8_0000_0000_0001),
        ],
    );
    table("cvt.sat.f32.f32", &[(&[s(2.0)], s(1.0))]);
    table(
        "cvt.f32.f16",
        &[
            (&[h(1.5)], s(1.5)),
            (&[1], s(2f32.powi(-24))),
            (&[0x7e00], NAN32),
            (&[0xfc00], s(-f32::INFINITY)),
        ],
    );
    table("cvt.f64.f16", &[(&[h(-1.5)], d(-1.5))]);
    table("cvt.f32.bf16", &[(&[b(1.5)], s(1.5)), (&[1], 0x1_0000)]);
    table(
        "cvt.rn.f16.f32",
        &[
            (&[s(65519.9)], 0x7bff),
            (&[s(65520.0)], 0x7c00),
            (&[s(2f32.powi(-25))], 0),
            (&[s(1.5 * 2f32.powi(-25))], 1),
        ],
    );
    table("cvt.rz.f16.f32", &[(&[s(1e9)], 0x7bff)]);
    table(
        "cvt.rn.f16.f64",
        &[
            (&[d(1.0 + 2f64.powi(-11) + 2f64.powi(-50))], 0x3c01),
            (&[d(1.0 + 2f64.powi(-11))], 0x3c00),
        ],
    );
    table(
        "cvt.rn.bf16.f32",
        &[
            (&[0x3f80_8000], 0x3f80),
            (&[0x3f80_8001], 0x3f81),
            (&[NAN32], NAN16),
        ],
    );
    table("cvt.rn.relu.bf16.f32", &[(&[s(-1.0)], 0)]);
    table(
        "cvt.rn.f16x2.f32",
        &[(&[s(1.0), s(2.0)], h(1.0) << 16 | h(2.0))],
    );
    table(
        "cvt.rz.bf16x2.f32",
        &[(&[0x3f80_ffff, 0x3f81_ffff], 0x3f80_3f81)],
    );
    table("cvt.rn.relu.f16x2.f32", &[(&[s(-1.0), s(2.0)], h(2.0))]);
    table(
        "cvt.rna.tf32.f32",
        &[
            (&[0x3f80_1000], 0x3f80_2000),
            (&[0x3f80_0fff], 0x3f80_0000),
            (&[s(-0.0)], s(-0.0)),
        ],
    );
    table(
        "cvt.rn.tf32.f32",
        &[(&[0x3f80_1000], 0x3f80_0000), (&[0x3f80_3000], 0x3f80_4000)],
    );
}

#[test]
fn eight_bit_floats() {
    let infinity = s(f32::INFINITY);
    table(
        "cvt.rn.satfinite.e4m3x2.f32",
        &[
            (&[s(1.25), s(-3.0)], 0x3ac4),
            // Ties go to even; what is too large is the greatest number.
            (&[s(1.0625), s(1.1875)], 0x383a),
            (&[s(464.0), s(-1e9)], 0x7efe),
            (&[infinity, NAN32], 0x7e7f),
            // Subnormal numbers, the smallest one and half of it.
            (&[s(0.013_671_875), s(0.001_953_125)], 0x0701),
            (&[s(0.000_976_562_5), s(-0.000_976_563)], 0x0081),
            (&[s(-0.0), s(0.0)], 0x8000),
        ],
    );
    table(
        "cvt.rn.satfinite.e5m2x2.f32",
        &[
            (&[s(1.25), s(-3.0)], 0x3dc2),
            (&[s(57_344.0), s(1e30)], 0x7b7b),
            (&[s(2f32.powi(-16)), s(2f32.powi(-18))], 0x0100),
            (&[NAN32, infinity], 0x7f7b),
        ],
    );
    table(
        "cvt.rn.satfinite.relu.e4m3x2.f32",
        &[(&[s(-1.0), s(1.0)], 0x0038), (&[NAN32, s(-0.0)], 0x7f00)],
    );
    table(
        "cvt.rn.satfinite.e4m3x2.f16x2",
        &[
            (&[h(1.25) << 16 | h(-3.0)], 0x3ac4),
            (&[0x7c00_fc00], 0x7efe),
        ],
    );
    table(
        "cvt.rn.satfinite.relu.e5m2x2.f16x2",
        &[(&[h(1.25) << 16 | h(-3.0)], 0x3d00)],
    );
    table(
        "cvt.rn.f16x2.e4m3x2",
        &[
            (&[0x3ac4], h(1.25) << 16 | h(-3.0)),
            (&[0x7eff], h(448.0) << 16 | 0x7fff),
            (&[0x0187], h(0.001_953_125) << 16 | h(-0.013_671_875)),
        ],
    );
    table(
        "cvt.rn.relu.f16x2.e5m2x2",
        &[(&[0x3dc2], h(1.25) << 16), (&[0x7cff], 0x7c00_7fff)],
    );
}

#[test]
fn sets_of_pairs_are_masks() {
    table(
        "set.eq.u32.f16x2",
        &[(&[h(1.0) << 16 | h(2.0), h(1.0) << 16 | h(3.0)], 0xffff_0000)],
    );
    table(
        "set.neu.s32.bf16x2",
        &[(&[0x3f80_7fff, 0x3f80_0000], 0x0000_ffff)],
    );
}

#[test]
fn what_is_not_decoded() {
    let unknown = [
        "add.rn.rz.f32",
        "add.approx.f32",
        "add.ftz.ftz.f32",
        "add.ftz.f64",
        "add.sat.f64",
        "add.rz.f16",
        "fma.f16",
        "fma.rz.bf16",
        "div.f64",
        "div.full.rn.f32",
        "div.approx.full.f32",
        "rcp.approx.f64",
        "rcp.approx.rn.f32",
        "sqrt.approx.f64",
        "rsqrt.f32",
        "sin.f32",
        "sin.approx.f64",
        "lg2.approx.f16",
        "tanh.approx.f64",
        "tanh.approx.ftz.f32",
        "neg.ftz.f64",
        "abs.rn.f32",
        "min.NaN.f64",
        "min.xorsign.f32",
        "copysign.f16",
        "testp.odd.f32",
        "testp.finite.f16",
        "cvt.rn.rz.f32.f64",
        "cvt.rn.s32.s8",
        "cvt.ftz.s32.s8",
        "cvt.relu.u32.u32",
        "cvt.rna.f32.f64",
        "cvt.rni.f32.s32",
        "cvt.rn.f16x2.s32",
        "cvt.rn.f32.f16x2",
        "cvt.rs.f16x2.f32",
        "cvt.tf32.f32",
        "cvt.rm.tf32.f32",
        "cvt.rn.tf32.f64",
        "cvt.rn.e4m3x2.f32",
        "cvt.rz.satfinite.e4m3x2.f32",
        "cvt.rn.satfinite.e4m3x2.bf16x2",
        "cvt.rn.satfinite.f16x2.e4m3x2",
        "set.eq.u16.f16x2",
        "cvt.pack.u16.s32",
        "cvt.pack.sat.u8.s32",
        "cvt.pack.sat.u16.s32.b32",
        "cvt.pack.sat.u16.u32",
        "add.rn.f32x2",
    ];
    for name in unknown {
        assert_eq!(decode(name), None, "{name}");
    }
}

/// f32 bits with many edge cases among them.
fn single() -> impl Strategy<Value = f32> {
    let exponents = prop::sample::select(vec![
        0u32, 1, 2, 60, 100, 126, 127, 128, 150, 200, 253, 254, 255,
    ]);
    let fractions = prop_oneof![
        Just(0u32),
        Just(1),
        Just(0x7f_ffff),
        Just(0x40_0000),
        0u32..0x80_0000
    ];
    prop_oneof![
        any::<u32>().prop_map(f32::from_bits),
        (any::<bool>(), exponents, fractions)
            .prop_map(|(s, e, f)| f32::from_bits(u32::from(s) << 31 | e << 23 | f)),
        (-1000i32..1000).prop_map(|i| i as f32 / 8.0),
    ]
}

fn double() -> impl Strategy<Value = f64> {
    let exponents = prop::sample::select(vec![
        0u64, 1, 2, 500, 970, 1000, 1022, 1023, 1024, 1100, 1500, 2045, 2046, 2047,
    ]);
    let fractions = prop_oneof![
        Just(0u64),
        Just(1),
        Just((1 << 52) - 1),
        Just(1 << 51),
        0u64..1 << 52
    ];
    prop_oneof![
        any::<u64>().prop_map(f64::from_bits),
        (any::<bool>(), exponents, fractions)
            .prop_map(|(s, e, f)| f64::from_bits(u64::from(s) << 63 | e << 52 | f)),
        (-1000i32..1000).prop_map(|i| f64::from(i) / 8.0),
        single().prop_map(f64::from),
    ]
}

/// `expected` as `eval` gives it: NaNs are canonical.
fn expect32(expected: f32) -> u64 {
    if expected.is_nan() {
        NAN32
    } else {
        s(expected)
    }
}

/// The results for rounding down, to nearest, up and to zero belong together: neighbours, or all
/// the same if exact.
fn check_directed(
    name: &str,
    ty: &str,
    sources: &[u64],
    nearest: f64,
    next_up: impl Fn(f64) -> f64,
    read: impl Fn(u64) -> f64,
) -> Result<(), TestCaseError> {
    let run = |round: &str| read(one(&format!("{name}.{round}.{ty}"), sources));
    let (down, up, zero) = (run("rm"), run("rp"), run("rz"));
    if nearest.is_nan() {
        prop_assert!(down.is_nan() && up.is_nan() && zero.is_nan());
        return Ok(());
    }
    prop_assert!(
        down <= nearest && nearest <= up,
        "{} {:x?}: {:e} {:e} {:e}",
        name,
        sources,
        down,
        nearest,
        up
    );
    prop_assert!(
        down == up || next_up(down) == up,
        "{} {:x?}: {:e} {:e}",
        name,
        sources,
        down,
        up
    );
    prop_assert_eq!(zero, if nearest >= 0.0 && up > 0.0 { down } else { up });
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Rounding to nearest, with subnormal numbers and without.
    #[test]
    fn single_to_nearest_is_the_host(a in single(), b in single(), c in single()) {
        let [x, y, z] = [a, b, c].map(s);
        prop_assert_eq!(one("add.f32", &[x, y]), expect32(a + b));
        prop_assert_eq!(one("sub.f32", &[x, y]), expect32(a - b));
        prop_assert_eq!(one("mul.f32", &[x, y]), expect32(a * b));
        prop_assert_eq!(one("div.rn.f32", &[x, y]), expect32(a / b));
        prop_assert_eq!(one("fma.rn.f32", &[x, y, z]), expect32(a.mul_add(b, c)));
        prop_assert_eq!(one("sqrt.rn.f32", &[x]), expect32(a.sqrt()));
        let flush = |value: f32| if value.is_subnormal() { 0f32.copysign(value) } else { value };
        let [a, b, c] = [a, b, c].map(flush);
        prop_assert_eq!(one("add.ftz.f32", &[x, y]), expect32(flush(a + b)));
        prop_assert_eq!(one("mul.ftz.f32", &[x, y]), expect32(flush(a * b)));
        prop_assert_eq!(one("div.rn.ftz.f32", &[x, y]), expect32(flush(a / b)));
        prop_assert_eq!(one("fma.rn.ftz.f32", &[x, y, z]), expect32(flush(a.mul_add(b, c))));
        prop_assert_eq!(one("sqrt.rn.ftz.f32", &[x]), expect32(flush(a.sqrt())));
    }

    #[test]
    fn single_directed(a in single(), b in single(), c in single()) {
        let [x, y, z] = [a, b, c].map(s);
        let next_up = |value: f64| f64::from((value as f32).next_up());
        let read = |bits: u64| f64::from(f32::from_bits(bits as u32));
        check_directed("add", "f32", &[x, y], (a + b).into(), next_up, read)?;
        check_directed("sub", "f32", &[x, y], (a - b).into(), next_up, read)?;
        check_directed("mul", "f32", &[x, y], (a * b).into(), next_up, read)?;
        check_directed("div", "f32", &[x, y], (a / b).into(), next_up, read)?;
        check_directed("fma", "f32", &[x, y, z], a.mul_add(b, c).into(), next_up, read)?;
        check_directed("rcp", "f32", &[x], (1.0 / a).into(), next_up, read)?;
        check_directed("sqrt", "f32", &[x], a.sqrt().into(), next_up, read)?;
        // An f64 holds the product, so it tells which side the rounding was on.
        let exact = f64::from(a) * f64::from(b);
        if exact.is_finite() {
            prop_assert!(read(one("mul.rm.f32", &[x, y])) <= exact && exact <= read(one("mul.rp.f32", &[x, y])));
        }
    }

    #[test]
    fn double_directed(a in double(), b in double(), c in double()) {
        let [x, y, z] = [a, b, c].map(d);
        let read = f64::from_bits;
        check_directed("add", "f64", &[x, y], a + b, f64::next_up, read)?;
        check_directed("mul", "f64", &[x, y], a * b, f64::next_up, read)?;
        check_directed("div", "f64", &[x, y], a / b, f64::next_up, read)?;
        check_directed("fma", "f64", &[x, y, z], a.mul_add(b, c), f64::next_up, read)?;
        check_directed("sqrt", "f64", &[x], a.sqrt(), f64::next_up, read)?;
        let canonical = |value: f64, sources: &[f64]| match sources.iter().rfind(|source| source.is_nan()) {
            Some(nan) => d(*nan) | 1 << 51,
            None if value.is_nan() => NAN64,
            None => d(value),
        };
        prop_assert_eq!(one("add.f64", &[x, y]), canonical(a + b, &[a, b]));
        prop_assert_eq!(one("sub.rn.f64", &[x, y]), canonical(a - b, &[a, b]));
        prop_assert_eq!(one("fma.rn.f64", &[x, y, z]), canonical(a.mul_add(b, c), &[a, c, b]));
        let least = match (a.is_nan(), b.is_nan()) {
            (_, true) if a.is_nan() => y | 1 << 51,
            (true, _) => y,
            (_, true) => x,
            _ if a < b || a == b && a.is_sign_negative() => x,
            _ => y,
        };
        prop_assert_eq!(one("min.f64", &[x, y]), least);
    }

    #[test]
    fn narrow_formats(a in any::<u16>(), b in any::<u16>(), c in any::<u16>(), wide in double()) {
        let [x, y, z] = [a, b, c].map(u64::from);
        let canonical16 = |value: f16| if value.is_nan() { NAN16 } else { u64::from(value.to_bits()) };
        let canonical_b = |value: bf16| if value.is_nan() { NAN16 } else { u64::from(value.to_bits()) };
        // An f64 holds sums and products of f16 exactly.
        let [p, q, r] = [a, b, c].map(|bits| f16::from_bits(bits).to_f64());
        prop_assert_eq!(one("add.f16", &[x, y]), canonical16(f16::from_f64(p + q)));
        prop_assert_eq!(one("mul.f16", &[x, y]), canonical16(f16::from_f64(p * q)));
        if p.is_finite() && q.is_finite() && r.is_finite() && (p * q + r) - r == p * q && (p * q + r) - p * q == r {
            prop_assert_eq!(one("fma.rn.f16", &[x, y, z]), canonical16(f16::from_f64(p * q + r)));
        }
        let [p, q] = [a, b].map(|bits| bf16::from_bits(bits).to_f64());
        prop_assert_eq!(one("mul.bf16", &[x, y]), canonical_b(bf16::from_f64(p * q)));
        // NaNs of 64 bits have rows of their own above.
        if !wide.is_nan() {
            prop_assert_eq!(one("cvt.rn.f16.f64", &[d(wide)]), canonical16(f16::from_f64(wide)));
            prop_assert_eq!(one("cvt.rn.bf16.f64", &[d(wide)]), canonical_b(bf16::from_f64(wide)));
            prop_assert_eq!(one("cvt.rn.f32.f64", &[d(wide)]), s(wide as f32));
        }
        prop_assert_eq!(one("cvt.rn.f16.f32", &[s(wide as f32)]), canonical16(f16::from_f32(wide as f32)));
        let half = f16::from_bits(a);
        prop_assert_eq!(one("cvt.f32.f16", &[x]), expect32(half.to_f32()));
    }

    #[test]
    fn conversions_between_integers_and_floats(i in any::<u64>(), shift in 0u32..64, f in double()) {
        let i = i >> shift;
        prop_assert_eq!(one("cvt.rn.f32.u64", &[i]), s(i as f32));
        prop_assert_eq!(one("cvt.rn.f32.s64", &[i]), s(i as i64 as f32));
        prop_assert_eq!(one("cvt.rn.f64.u64", &[i]), d(i as f64));
        prop_assert_eq!(one("cvt.rn.f64.s64", &[i]), d(i as i64 as f64));
        prop_assert_eq!(one("cvt.rn.f32.s32", &[i]), s(i as i32 as f32));
        prop_assert_eq!(one("cvt.rn.f64.u32", &[i]), d(f64::from(i as u32)));
        prop_assert_eq!(one("cvt.rn.f32.u16", &[i]), s(f32::from(i as u16)));
        let single = f as f32;
        if !f.is_nan() {
            prop_assert_eq!(one("cvt.rzi.s32.f64", &[d(f)]), u64::from(f as i32 as u32));
            prop_assert_eq!(one("cvt.rmi.u64.f64", &[d(f)]), f.floor() as u64);
            prop_assert_eq!(one("cvt.rpi.s64.f64", &[d(f)]), f.ceil() as i64 as u64);
            prop_assert_eq!(one("cvt.rni.u32.f32", &[s(single)]), u64::from(single.round_ties_even() as u32));
            prop_assert_eq!(one("cvt.rzi.s64.f32", &[s(single)]), single as i64 as u64);
        }
    }
}

/// Sources that random operands found on an H200.
#[test]
fn a_fused_result_is_flushed_as_it_is_rounded_without_a_smallest_exponent() {
    let fma = |name: &str, sources: [u64; 3]| {
        let mut words = name.split('.');
        let op = Op::decode(words.next().unwrap(), &words.collect::<Vec<_>>()).unwrap();
        eval(op, &sources)[0]
    };
    let smallest = 0x0080_0000;
    let down = [0x87e5_1e3a, 0x2bff_df73, smallest];
    assert_eq!(fma("fma.rn.ftz.f32", down), 0);
    assert_eq!(fma("mad.rn.ftz.f32", down), 0);
    assert_eq!(fma("fma.rn.f32", down), smallest);
    assert_eq!(
        fma("fma.rn.ftz.sat.f32", [0x8359_4d3d, 0x3037_13b5, smallest]),
        0
    );
    assert_eq!(
        fma("fma.rp.ftz.sat.f32", [0x904c_446a, 0x23e8_7e9c, smallest]),
        0
    );
    // So little below the smallest normal number that 24 bits are rounded to it.
    for (name, sources) in [
        ("fma.rn.ftz.f32", [0x0a95_16c4, 0x9f93_3cb0, smallest]),
        ("mad.rn.ftz.f32", [0x9a6f_31c4, smallest, smallest]),
        ("fma.rn.ftz.sat.f32", [0x8fb5_9e9d, 0x1524_a4fa, smallest]),
        ("fma.rp.ftz.f32", [0x8f82_25eb, 0x1af9_d406, smallest]),
        ("fma.rn.ftz.f32", [smallest, 0x8b35_9e9d, smallest]),
    ] {
        assert_eq!(fma(name, sources), smallest, "{name} {sources:x?}");
    }
    // 2^-126 - 2^-151, half of the last bit: to even; and a little more.
    let half = [0x8000_0000 | (127 - 100) << 23, (127 - 51) << 23, smallest];
    assert_eq!(fma("fma.rn.ftz.f32", half), smallest);
    let more = [half[0], half[1] + 1, smallest];
    assert_eq!(fma("fma.rn.ftz.f32", more), 0);
    // Products of two, and in half precision.
    assert_eq!(fma("mul.ftz.f16", [0x93c1, 0xac20, 0]), 0);
    assert_eq!(fma("mul.f16", [0x93c1, 0xac20, 0]), 0x400);
    assert_eq!(fma("mul.ftz.f16", [0x9400, 0xac00, 0]), 0x400);
    assert_eq!(fma("mul.ftz.f16", [0x13c1, 0xac20, 0]), 0x8000);
    // Exactly the smallest normal number, and above it.
    assert_eq!(fma("fma.rn.ftz.f32", [0, 0x3f80_0000, smallest]), smallest);
    assert_eq!(
        fma("fma.rz.ftz.f32", [0x07e5_1e3a, 0x2bff_df73, smallest]),
        smallest
    );
    assert_eq!(
        fma("fma.rn.ftz.f32", [0x07e5_1e3a, 0xabff_df73, 0x8080_0000]),
        0x8080_0000
    );
    assert_eq!(
        fma("fma.rn.ftz.f32", [0x07e5_1e3a, 0x2bff_df73, 0x8080_0000]),
        0x8000_0000
    );
}

//! Every operation of the domains against concrete arithmetic: members of the arguments give
//! members of the result.

use proptest::prelude::*;
use warpbpf_ebpf::{AluOp, JumpOp};

use super::compare::refine;
use super::interval::Interval;
use super::pointer::{Target, Value};
use super::scalar::Scalar;
use super::stack::{Stack, Unreadable};
use super::widen::{Step, join};

type Tnum = super::tnum::Tnum<64>;

pub(super) const ALU: [AluOp; 14] = [
    AluOp::Add,
    AluOp::Sub,
    AluOp::Mul,
    AluOp::Div,
    AluOp::SDiv,
    AluOp::Or,
    AluOp::And,
    AluOp::Lsh,
    AluOp::Rsh,
    AluOp::Mod,
    AluOp::SMod,
    AluOp::Xor,
    AluOp::Mov,
    AluOp::Arsh,
];

pub(super) const JUMPS: [JumpOp; 11] = [
    JumpOp::Eq,
    JumpOp::Ne,
    JumpOp::Set,
    JumpOp::Gt,
    JumpOp::Ge,
    JumpOp::Lt,
    JumpOp::Le,
    JumpOp::SGt,
    JumpOp::SGe,
    JumpOp::SLt,
    JumpOp::SLe,
];

/// RFC 9669 §4.1, written down once more and independently of the crate.
pub(super) fn concrete(op: AluOp, wide: bool, a: u64, b: u64) -> u64 {
    if wide {
        let (sa, sb) = (a as i64, b as i64);
        match op {
            AluOp::Add => a.wrapping_add(b),
            AluOp::Sub => a.wrapping_sub(b),
            AluOp::Mul => a.wrapping_mul(b),
            AluOp::Div => a.checked_div(b).unwrap_or(0),
            AluOp::SDiv => {
                if b == 0 {
                    0
                } else {
                    sa.wrapping_div(sb) as u64
                }
            }
            AluOp::Or => a | b,
            AluOp::And => a & b,
            AluOp::Lsh => a << (b & 63),
            AluOp::Rsh => a >> (b & 63),
            AluOp::Mod => a.checked_rem(b).unwrap_or(a),
            AluOp::SMod => {
                if b == 0 {
                    a
                } else {
                    sa.wrapping_rem(sb) as u64
                }
            }
            AluOp::Xor => a ^ b,
            AluOp::Mov => b,
            AluOp::Arsh => (sa >> (b & 63)) as u64,
        }
    } else {
        let (a, b) = (a as u32, b as u32);
        let (sa, sb) = (a as i32, b as i32);
        u64::from(match op {
            AluOp::Add => a.wrapping_add(b),
            AluOp::Sub => a.wrapping_sub(b),
            AluOp::Mul => a.wrapping_mul(b),
            AluOp::Div => a.checked_div(b).unwrap_or(0),
            AluOp::SDiv => {
                if b == 0 {
                    0
                } else {
                    sa.wrapping_div(sb) as u32
                }
            }
            AluOp::Or => a | b,
            AluOp::And => a & b,
            AluOp::Lsh => a << (b & 31),
            AluOp::Rsh => a >> (b & 31),
            AluOp::Mod => a.checked_rem(b).unwrap_or(a),
            AluOp::SMod => {
                if b == 0 {
                    a
                } else {
                    sa.wrapping_rem(sb) as u32
                }
            }
            AluOp::Xor => a ^ b,
            AluOp::Mov => b,
            AluOp::Arsh => (sa >> (b & 31)) as u32,
        })
    }
}

pub(super) fn holds(op: JumpOp, wide: bool, a: u64, b: u64) -> bool {
    let (a, b) = if wide {
        (a, b)
    } else {
        (u64::from(a as u32), u64::from(b as u32))
    };
    let (sa, sb) = if wide {
        (a as i64, b as i64)
    } else {
        (i64::from(a as i32), i64::from(b as i32))
    };
    match op {
        JumpOp::Eq => a == b,
        JumpOp::Ne => a != b,
        JumpOp::Set => a & b != 0,
        JumpOp::Gt => a > b,
        JumpOp::Ge => a >= b,
        JumpOp::Lt => a < b,
        JumpOp::Le => a <= b,
        JumpOp::SGt => sa > sb,
        JumpOp::SGe => sa >= sb,
        JumpOp::SLt => sa < sb,
        JumpOp::SLe => sa <= sb,
    }
}

/// Numbers near the places where arithmetic changes its mind.
fn number() -> impl Strategy<Value = u64> {
    let edges = prop::sample::select(vec![
        0,
        1,
        31,
        32,
        63,
        64,
        u64::from(i32::MAX as u32),
        1 << 31,
        u64::from(u32::MAX),
        1 << 32,
        i64::MAX as u64,
        1 << 63,
        u64::MAX,
        i32::MIN as u64,
        i32::MAX as u64,
    ]);
    prop_oneof![
        3 => any::<u64>(),
        3 => (edges, -3i64..=3).prop_map(|(x, d)| x.wrapping_add(d as u64)),
        2 => 0u64..100,
        1 => any::<i32>().prop_map(|x| x as u64),
    ]
}

/// A set that holds a given number, made as programs make it: masked, bounded, compared.
fn around(x: u64) -> impl Strategy<Value = Scalar> {
    let interval = (number(), number()).prop_map(move |(a, b)| {
        let (lo, hi) = (a.min(b).min(x), a.max(b).max(x));
        Scalar {
            u64: Interval { min: lo, max: hi },
            ..Scalar::UNKNOWN
        }
    });
    let signed = (number(), number()).prop_map(move |(a, b)| {
        let (a, b, x) = (a as i64, b as i64, x as i64);
        Scalar {
            s64: Interval {
                min: a.min(b).min(x),
                max: a.max(b).max(x),
            },
            ..Scalar::UNKNOWN
        }
    });
    let low = (number(), number()).prop_map(move |(a, b)| {
        let (ua, ub, ux) = (a as u32, b as u32, x as u32);
        let (sa, sb, sx) = (a as i32, b as i32, x as i32);
        Scalar {
            u32: Interval {
                min: ua.min(ub).min(ux),
                max: ua.max(ub).max(ux),
            },
            s32: Interval {
                min: sa.min(sb).min(sx),
                max: sa.max(sb).max(sx),
            },
            ..Scalar::UNKNOWN
        }
    });
    let bits = number().prop_map(move |mask| Scalar {
        bits: Tnum {
            value: x & !mask,
            mask,
        },
        ..Scalar::UNKNOWN
    });
    let one = prop_oneof![
        interval,
        signed,
        low,
        bits,
        Just(Scalar::constant(x)),
        Just(Scalar::UNKNOWN)
    ];
    prop::collection::vec(one, 1..4).prop_map(|parts| {
        parts.iter().fold(Scalar::UNKNOWN, |all, part| {
            all.meet(part).expect("both hold the number")
        })
    })
}

fn member() -> impl Strategy<Value = (u64, Scalar)> {
    number().prop_flat_map(|x| (Just(x), around(x)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn sets_hold_what_they_are_made_around((x, set) in member()) {
        prop_assert!(set.contains(x), "{set:?}");
        prop_assert!(set.is_subset(&Scalar::UNKNOWN));
        prop_assert!(Scalar::constant(x).is_subset(&set));
    }

    #[test]
    fn arithmetic_is_sound((a, sa) in member(), (b, sb) in member(), op in prop::sample::select(&ALU[..]), wide: bool) {
        let want = concrete(op, wide, a, b);
        let got = Scalar::alu(op, wide, &sa, &sb);
        prop_assert!(got.contains(want), "{op:?} {a:#x} {b:#x} = {want:#x} not in {got:?}");
        let exact = Scalar::alu(op, wide, &Scalar::constant(a), &Scalar::constant(b));
        prop_assert_eq!(exact.known(), Some(want), "{:?} of constants is a constant", op);
    }

    #[test]
    fn extensions_are_sound((x, set) in member(), bits in prop::sample::select(vec![8u32, 16, 32, 64])) {
        let low = x & (u64::MAX >> (64 - bits));
        prop_assert!(set.zero_extend(bits).contains(low));
        let signed = ((x << (64 - bits)) as i64 >> (64 - bits)) as u64;
        prop_assert!(set.sign_extend(bits).contains(signed), "{:?}", set.sign_extend(bits));
        if bits > 8 {
            prop_assert!(set.swap_bytes(bits).contains(x.swap_bytes() >> (64 - bits)));
        }
        prop_assert!(set.neg(true).contains(x.wrapping_neg()));
        prop_assert!(set.neg(false).contains(u64::from((x as u32).wrapping_neg())));
    }

    #[test]
    fn branches_keep_what_goes_there((a, sa) in member(), (b, sb) in member(), op in prop::sample::select(&JUMPS[..]), wide: bool) {
        let outcome = holds(op, wide, a, b);
        let Some((ra, rb)) = refine(op, wide, &sa, &sb, outcome) else {
            return Err(TestCaseError::fail(format!("{op:?} {a:#x} {b:#x} went to an impossible side")));
        };
        prop_assert!(ra.contains(a) && rb.contains(b), "{ra:?} {rb:?}");
        prop_assert!(ra.is_subset(&sa) && rb.is_subset(&sb));
    }

    #[test]
    fn joins_hold_both((a, sa) in member(), (b, sb) in member()) {
        for step in [Step::Hull, Step::Leap] {
            let joined = join(&sa, &sb, step, &[]);
            prop_assert!(joined.contains(a) && joined.contains(b));
            prop_assert!(sa.is_subset(&joined) && sb.is_subset(&joined), "{sa:?} {sb:?} {joined:?}");
        }
    }

    #[test]
    fn constants_decide_branches(a in number(), b in number(), op in prop::sample::select(&JUMPS[..])) {
        let side = |outcome| refine(op, true, &Scalar::constant(a), &Scalar::constant(b), outcome).is_some();
        prop_assert_eq!((side(true), side(false)), (holds(op, true, a, b), !holds(op, true, a, b)));
    }
}

/// All tnums of a few bits; the bits above are known zeros.
fn small_tnums(bits: u32) -> Vec<Tnum> {
    let all = 1u64 << bits;
    (0..all)
        .flat_map(|mask| {
            (0..all)
                .filter(move |v| v & mask == 0)
                .map(move |value| Tnum { value, mask })
        })
        .collect()
}

#[test]
fn known_bits_are_exhaustively_sound_on_four_bits() {
    type Op = (fn(Tnum, Tnum) -> Tnum, fn(u64, u64) -> u64);
    let ops: [Op; 6] = [
        (Tnum::add, u64::wrapping_add),
        (Tnum::sub, u64::wrapping_sub),
        (Tnum::mul, u64::wrapping_mul),
        (Tnum::and, |a, b| a & b),
        (Tnum::or, |a, b| a | b),
        (Tnum::xor, |a, b| a ^ b),
    ];
    let tnums = small_tnums(4);
    let members = |t: Tnum| (0u64..16).filter(move |&x| t.contains(x));
    for &a in &tnums {
        for &b in &tnums {
            for (abstract_op, concrete_op) in ops {
                let result = abstract_op(a, b);
                for x in members(a) {
                    for y in members(b) {
                        assert!(
                            result.contains(concrete_op(x, y)),
                            "{a:?} {b:?} -> {result:?}: {x} {y}"
                        );
                    }
                }
            }
            let both: Vec<u64> = members(a).filter(|&x| b.contains(x)).collect();
            assert_eq!(a.meet(b).is_some(), !both.is_empty());
            assert!(
                both.iter()
                    .all(|&x| a.meet(b).is_some_and(|m| m.contains(x)))
            );
            assert_eq!(a.is_subset(b), members(a).all(|x| b.contains(x)));
        }
    }
}

#[test]
fn a_range_is_its_common_leading_bits() {
    assert_eq!(Tnum::range(8, 11), Tnum { value: 8, mask: 3 });
    assert_eq!(Tnum::range(7, 8), Tnum { value: 0, mask: 15 });
    assert_eq!(Tnum::range(5, 5), Tnum::constant(5));
    assert_eq!(Tnum::range(0, u64::MAX), Tnum::UNKNOWN);
}

#[test]
fn bounds_of_the_low_half_survive_a_wide_addition() {
    // r1 in 0..=10, w1 += -1: as a signed 32-bit number still -1..=9.
    let x = Scalar::alu(
        AluOp::Add,
        false,
        &Scalar::range(0, 10),
        &Scalar::constant(u64::MAX),
    );
    assert_eq!((x.s32.min, x.s32.max), (-1, 9));
    assert_eq!(x.u64.max, u64::from(u32::MAX));
}

#[test]
fn masks_and_steps_are_seen() {
    let x = Scalar::alu(AluOp::And, true, &Scalar::UNKNOWN, &Scalar::constant(0x38));
    assert_eq!((x.u64.min, x.u64.max, x.s64.max), (0, 0x38, 0x38));
    assert_eq!(x.to_string(), "0..=56 in steps of 8");
    let y = Scalar::alu(AluOp::Lsh, true, &Scalar::range(0, 3), &Scalar::constant(3));
    assert_eq!((y.u64.max, y.bits.mask), (24, 0x18));
    assert_eq!(Scalar::UNKNOWN.to_string(), "any number");
    assert_eq!(Scalar::constant(u64::MAX).to_string(), "-1");
}

#[test]
fn a_stack_gives_back_what_was_written() {
    let mut stack = Stack::default();
    assert_eq!(stack.read(-8, 8), Err(Unreadable::Unwritten(-8)));
    stack.write(-8, 8, Value::constant(0x1122_3344_5566_7788));
    assert_eq!(
        stack.read(-8, 8),
        Ok(Value::constant(0x1122_3344_5566_7788))
    );
    assert_eq!(stack.read(-4, 4), Ok(Value::constant(0x1122_3344)));
    assert_eq!(stack.read(-8, 1), Ok(Value::constant(0x88)));
    // A byte in the middle changes: the rest is written, but unknown.
    stack.write(-6, 1, Value::constant(7));
    assert_eq!(stack.read(-6, 1), Ok(Value::constant(7)));
    assert_eq!(stack.read(-8, 8), Ok(Value::number(Scalar::UNKNOWN)));
    assert_eq!(stack.readable(-9, 0), Err(Unreadable::Unwritten(-9)));
}

#[test]
fn a_stored_pointer_is_read_whole_or_not_at_all() {
    let mut stack = Stack::default();
    stack.write(-16, 8, Value::pointer(Target::Context));
    assert_eq!(stack.read(-16, 8), Ok(Value::pointer(Target::Context)));
    assert_eq!(stack.read(-16, 4), Err(Unreadable::Pointer(-16)));
    assert_eq!(stack.readable(-16, -8), Err(Unreadable::Pointer(-16)));
    // Half of it is overwritten: the other half is no number.
    stack.write(-16, 4, Value::constant(0));
    assert_eq!(stack.read(-12, 4), Err(Unreadable::Unwritten(-12)));
    stack.write_somewhere(-16, -12);
    assert_eq!(
        stack.read(-16, 4),
        Ok(Value::number(Scalar::loaded(32, false)))
    );
}

/// Stores of numbers and pointers in 32 bytes, mostly in the same places.
fn stores() -> impl Strategy<Value = Vec<(i64, u32, Option<u64>)>> {
    let place = (0u32..4).prop_flat_map(|log| {
        let size = 1i64 << log;
        (0..32 / size).prop_map(move |at| (-32 + at * size, size as u32))
    });
    let store = (place, prop::option::weighted(0.8, 0u64..3)).prop_map(|((at, size), number)| {
        // A pointer is only ever stored whole.
        let at = if number.is_some() { at } else { at & !7 };
        (at, if number.is_some() { size } else { 8 }, number)
    });
    prop::collection::vec(store, 0..12)
}

fn stored(stores: &[(i64, u32, Option<u64>)]) -> Stack {
    let mut stack = Stack::default();
    for &(at, size, number) in stores {
        let value = number.map_or(Value::pointer(Target::Context), Value::constant);
        stack.write(at, size, value);
    }
    stack
}

proptest! {
    #[test]
    fn one_walk_over_two_stacks_compares_all_their_cells(first in stores(), more in stores()) {
        // What was stored there and something more.
        let (here, there) = (stored(&first), stored(&[first, more].concat()));
        for (a, b) in [(&here, &there), (&there, &here)] {
            let readable = (-32..0).all(|at| a.readable(at, at + 1) != Ok(()) || b.readable(at, at + 1) == Ok(()));
            let known = a.cells().all(|c| b.read(c.offset.into(), c.size.into()) == Ok(c.value));
            let pointers = b.cells().all(|c| {
                c.value.scalar().is_some()
                    || a.cells().any(|mine| mine == c)
                    || (0..8).all(|i| a.readable(i64::from(c.offset) + i, i64::from(c.offset) + i + 1) != Ok(()))
            });
            prop_assert_eq!(a.covers(b, |a, b| a == b), readable && known && pointers);
        }
    }
}

#[test]
fn shift_pairs_extend_the_low_half() {
    let shift = |op, x: &Scalar, n| Scalar::alu(op, true, x, &Scalar::constant(n));
    let low = Scalar {
        s32: Interval { min: -4, max: 4 },
        ..Scalar::UNKNOWN
    };
    let up = shift(AluOp::Lsh, &low, 32);
    let signed = shift(AluOp::Arsh, &up, 32);
    assert_eq!((signed.s64.min, signed.s64.max), (-4, 4));
    let scaled = shift(AluOp::Arsh, &up, 30);
    assert_eq!(
        (scaled.s64.min, scaled.s64.max, scaled.bits.max() & 3),
        (-16, 16, 0)
    );
    let low = Scalar {
        u32: Interval { min: 3, max: 9 },
        ..Scalar::UNKNOWN
    };
    let unsigned = shift(AluOp::Rsh, &shift(AluOp::Lsh, &low, 32), 32);
    assert_eq!((unsigned.u64.min, unsigned.u64.max), (3, 9));
}

/// Numbers at which arithmetic of 64 and 32 bits changes its mind.
pub(super) fn corners() -> Vec<u64> {
    let near = [0, 1 << 31, 1 << 32, 1 << 63];
    let mut all: Vec<u64> = near
        .into_iter()
        .flat_map(|x: u64| [x.wrapping_sub(1), x, x.wrapping_add(1)])
        .chain([6, 33, i32::MIN as u64, 0x5555_5555_aaaa_aaaa])
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Every set with corners as bounds in one of its parts: unsigned, signed, of the low half, and
/// known bits.
fn corner_sets() -> Vec<Scalar> {
    let corners = corners();
    let mut sets: Vec<Scalar> = Vec::new();
    let mut add = |set: Scalar| {
        if let Some(set) = set.reduced()
            && !sets.contains(&set)
        {
            sets.push(set);
        }
    };
    for &a in &corners {
        for &b in &corners {
            let any = Scalar::UNKNOWN;
            let bits = Tnum {
                value: a & !b,
                mask: b,
            };
            add(Scalar { bits, ..any });
            if let Some(u64) = Interval::new(a, b) {
                add(Scalar { u64, ..any });
            }
            if let Some(s64) = Interval::new(a as i64, b as i64) {
                add(Scalar { s64, ..any });
            }
            if let Some(u32) = Interval::new(a as u32, b as u32) {
                add(Scalar { u32, ..any });
            }
            if let Some(s32) = Interval::new(a as i32, b as i32) {
                add(Scalar { s32, ..any });
            }
        }
    }
    sets
}

/// All operations on all pairs of sets with corners as bounds, against all corners that are in
/// them.
#[test]
#[ignore = "cargo xtask test --deep"]
fn operations_are_sound_on_all_corners() {
    let (corners, sets) = (corners(), corner_sets());
    let members: Vec<Vec<u64>> = sets
        .iter()
        .map(|set| {
            corners
                .iter()
                .copied()
                .filter(|x| set.contains(*x))
                .collect()
        })
        .collect();
    assert!(sets.len() > 300, "{}", sets.len());
    for (a, in_a) in sets.iter().zip(&members) {
        for (b, in_b) in sets.iter().zip(&members) {
            for wide in [true, false] {
                for op in ALU {
                    let result = Scalar::alu(op, wide, a, b);
                    for (&x, &y) in in_a.iter().flat_map(|x| in_b.iter().map(move |y| (x, y))) {
                        let want = concrete(op, wide, x, y);
                        assert!(
                            result.contains(want),
                            "{op:?} {wide} {x:#x} {y:#x} = {want:#x}: {a:?} {b:?} give {result:?}"
                        );
                    }
                }
                for op in JUMPS {
                    let sides = [true, false].map(|outcome| refine(op, wide, a, b, outcome));
                    for (&x, &y) in in_a.iter().flat_map(|x| in_b.iter().map(move |y| (x, y))) {
                        let side = &sides[usize::from(!holds(op, wide, x, y))];
                        assert!(
                            side.is_some_and(|(a, b)| a.contains(x) && b.contains(y)),
                            "{op:?} {wide} {x:#x} {y:#x}: {a:?} {b:?} give {side:?}"
                        );
                    }
                }
            }
            if let Some(both) = a.meet(b) {
                assert!(in_a.iter().all(|x| !b.contains(*x) || both.contains(*x)));
            } else {
                assert!(in_a.iter().all(|x| !b.contains(*x)), "{a:?} {b:?}");
            }
            for step in [Step::Hull, Step::Leap, Step::Far] {
                let joined = join(a, b, step, &[]);
                assert!(in_a.iter().chain(in_b).all(|x| joined.contains(*x)));
            }
        }
    }
}

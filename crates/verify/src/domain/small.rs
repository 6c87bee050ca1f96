//! The domain at 6 and at 4 bits, where every abstract value can be tried against every number: the
//! code is the same as at 64 bits, with low halves of 3 and 2 bits.
//!
//! A set of numbers is a word with a bit for each member, so that "holds all results" is one
//! operation on words.

use std::collections::HashSet;
use std::hash::Hash;

use warpbpf_ebpf::{AluOp, JumpOp};

use super::compare::refine;
use super::interval::{Bound, Interval};
use super::scalar::Number;
use super::tests::{ALU, JUMPS, concrete, corners, holds};
use super::tnum::Tnum;
use super::widen::{Step, join};
use super::width::{ones, signed};

/// Numbers that are in an abstract value, a bit for each.
type Members = u64;

const STEPS: [Step; 3] = [Step::Hull, Step::Leap, Step::Far];

/// RFC 9669 §4.1 in any width, by integers of 128 bits.
fn result(op: AluOp, bits: u32, a: u64, b: u64) -> u64 {
    let (a, b) = (i128::from(a & ones(bits)), i128::from(b & ones(bits)));
    let sign = |x: i128| {
        if x >> (bits - 1) == 1 {
            x - (1 << bits)
        } else {
            x
        }
    };
    let amount = b & i128::from(bits.next_power_of_two() - 1);
    let exact = match op {
        AluOp::Add => a + b,
        AluOp::Sub => a - b,
        AluOp::Mul => a.wrapping_mul(b),
        AluOp::Div => {
            if b == 0 {
                0
            } else {
                a / b
            }
        }
        AluOp::SDiv => {
            if b == 0 {
                0
            } else {
                sign(a) / sign(b)
            }
        }
        AluOp::Mod => {
            if b == 0 {
                a
            } else {
                a % b
            }
        }
        AluOp::SMod => {
            if b == 0 {
                a
            } else {
                sign(a) % sign(b)
            }
        }
        AluOp::Or => a | b,
        AluOp::And => a & b,
        AluOp::Xor => a ^ b,
        AluOp::Mov => b,
        AluOp::Lsh => (a as u128).wrapping_shl(amount as u32) as i128,
        AluOp::Rsh => a >> amount,
        AluOp::Arsh => sign(a) >> amount,
    };
    exact as u64 & ones(bits)
}

/// Whether the comparison of numbers of `bits` bits holds.
fn outcome(op: JumpOp, bits: u32, a: u64, b: u64) -> bool {
    let (a, b) = (a & ones(bits), b & ones(bits));
    // As the same comparison of numbers with the same signs.
    let wide = |x| match op {
        JumpOp::SGt | JumpOp::SGe | JumpOp::SLt | JumpOp::SLe => signed(bits, x) as u64,
        JumpOp::Eq | JumpOp::Ne | JumpOp::Set => x,
        JumpOp::Gt | JumpOp::Ge | JumpOp::Lt | JumpOp::Le => x,
    };
    holds(op, true, wide(a), wide(b))
}

#[test]
fn the_meaning_in_any_width_is_that_of_64_and_32_bits() {
    for a in corners() {
        for b in corners() {
            for op in ALU {
                assert_eq!(
                    result(op, 64, a, b),
                    concrete(op, true, a, b),
                    "{op:?} {a:#x} {b:#x}"
                );
                assert_eq!(
                    result(op, 32, a, b),
                    concrete(op, false, a, b),
                    "{op:?} {a:#x} {b:#x}"
                );
            }
            for op in JUMPS {
                assert_eq!(outcome(op, 64, a, b), holds(op, true, a, b));
                assert_eq!(outcome(op, 32, a, b), holds(op, false, a, b));
            }
        }
    }
}

/// The members of the numbers below `2^bits` that `is` says yes to.
fn members_if(bits: u32, is: impl Fn(u64) -> bool) -> Members {
    (0..1 << bits)
        .filter(|&x| is(x))
        .fold(0, |all, x| all | 1 << x)
}

/// The numbers from `min` on, `max` the last one, going round after the last of `2^bits`.
fn run(bits: u32, min: i64, max: i64) -> Members {
    let all = ones(1 << bits);
    let length = (max - min + 1) as u32;
    assert!((1..=1 << bits).contains(&length), "{min}..={max}");
    let start = min as u32 & ((1 << bits) - 1);
    let (low, high) = (ones(length), (1 << bits) - start);
    let above = low << start & all;
    if length > high {
        above | low >> high
    } else {
        above
    }
}

/// The members of a value, and that its parts are what they must be.
fn members<const B: u32, const H: u32>(set: &Number<B, H>) -> Members {
    let Number {
        bits,
        u64,
        s64,
        u32,
        s32,
    } = *set;
    assert!(
        bits.value & bits.mask == 0 && (bits.value | bits.mask) <= ones(B),
        "{set:?}"
    );
    assert!(
        u64.is_subset(Interval::FULL) && s64.is_subset(Interval::FULL),
        "{set:?}"
    );
    assert!(
        u32.is_subset(Interval::FULL) && s32.is_subset(Interval::FULL),
        "{set:?}"
    );
    let mut all = run(B, u64.min as i64, u64.max as i64) & run(B, s64.min, s64.max);
    let low = run(H, u32.min.into(), u32.max.into()) & run(H, s32.min.into(), s32.max.into());
    let mut lows = 0;
    for high in 0..1 << (B - H) {
        lows |= low << (high << H);
    }
    all &= lows;
    for bit in 0..B {
        let with = WITH[bit as usize] & ones(1 << B);
        if bits.mask >> bit & 1 == 0 {
            all &= if bits.value >> bit & 1 == 1 {
                with
            } else {
                !with
            };
        }
    }
    all
}

/// The numbers below 64 that have a bit set.
const WITH: [Members; 6] = [
    0xaaaa_aaaa_aaaa_aaaa,
    0xcccc_cccc_cccc_cccc,
    0xf0f0_f0f0_f0f0_f0f0,
    0xff00_ff00_ff00_ff00,
    0xffff_0000_ffff_0000,
    0xffff_ffff_0000_0000,
];

fn numbers(members: Members) -> impl Iterator<Item = usize> {
    let mut left = members;
    std::iter::from_fn(move || {
        (left != 0).then(|| {
            let x = left.trailing_zeros();
            left &= left - 1;
            x as usize
        })
    })
}

fn intervals<T: Bound + TryFrom<i64>, const B: u32>() -> Vec<Interval<T, B>> {
    let number = |x: i64| T::try_from(x).ok();
    let all = -(1i64 << B)..1 << B;
    let ends: Vec<T> = all
        .filter_map(number)
        .filter(|x| Interval::<T, B>::FULL.contains(*x))
        .collect();
    let pairs = ends
        .iter()
        .flat_map(|&min| ends.iter().map(move |&max| (min, max)));
    pairs
        .filter_map(|(min, max)| Interval::new(min, max))
        .collect()
}

fn known_bits<const B: u32>() -> Vec<Tnum<B>> {
    let all = 0..1u64 << B;
    let pairs = all
        .clone()
        .flat_map(|mask| all.clone().map(move |value| (value, mask)));
    pairs
        .filter(|(value, mask)| value & mask == 0)
        .map(|(value, mask)| Tnum { value, mask })
        .collect()
}

fn distinct<T: Copy + Eq + Hash>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = HashSet::new();
    all.filter(|x| seen.insert(*x)).collect()
}

/// Every value with something known in one part only, by part.
fn of_one_part<const B: u32, const H: u32>() -> [Vec<Number<B, H>>; 5] {
    let any = Number::UNKNOWN;
    [
        known_bits()
            .into_iter()
            .map(|bits| Number { bits, ..any })
            .collect(),
        intervals()
            .into_iter()
            .map(|u64| Number { u64, ..any })
            .collect(),
        intervals()
            .into_iter()
            .map(|s64| Number { s64, ..any })
            .collect(),
        intervals()
            .into_iter()
            .map(|u32| Number { u32, ..any })
            .collect(),
        intervals()
            .into_iter()
            .map(|s32| Number { s32, ..any })
            .collect(),
    ]
}

/// What operations and comparisons of numbers of `B` bits are, as tables.
struct Meaning {
    /// The result by both operands.
    alu: Vec<(AluOp, bool, Vec<Vec<u8>>)>,
    /// By the first operand: the second ones for which it holds.
    compare: Vec<(JumpOp, bool, Vec<Members>)>,
}

impl Meaning {
    fn of<const B: u32, const H: u32>() -> Meaning {
        let all = 0..1u64 << B;
        let widths = [(true, B), (false, H)];
        let alu = ALU
            .into_iter()
            .flat_map(|op| widths.map(|width| (op, width)));
        let compare = JUMPS
            .into_iter()
            .flat_map(|op| widths.map(|width| (op, width)));
        Meaning {
            alu: alu
                .map(|(op, (wide, bits))| {
                    let row = |x| all.clone().map(|y| result(op, bits, x, y) as u8).collect();
                    (op, wide, all.clone().map(row).collect())
                })
                .collect(),
            compare: compare
                .map(|(op, (wide, bits))| {
                    let row = |x| members_if(B, |y| outcome(op, bits, x, y));
                    (op, wide, all.clone().map(row).collect())
                })
                .collect(),
        }
    }
}

/// A value with its members.
type Known<const B: u32, const H: u32> = (Number<B, H>, Members);

fn known<const B: u32, const H: u32>(all: Vec<Number<B, H>>) -> Vec<Known<B, H>> {
    all.into_iter().map(|set| (set, members(&set))).collect()
}

/// All that is done to two values, for each of the first ones.
fn check_pairs<'a, const B: u32, const H: u32>(
    meaning: &Meaning,
    firsts: impl Iterator<Item = &'a Known<B, H>>,
    second: &Known<B, H>,
) -> u64 {
    let (b, in_b) = second;
    // By the first operand: the results with all members of the second one.
    let row = |table: &Vec<u8>| numbers(*in_b).fold(0, |all, y| all | 1u64 << table[y]);
    let images: Vec<Vec<Members>> = meaning
        .alu
        .iter()
        .map(|(.., table)| table.iter().map(row).collect())
        .collect();
    let mut pairs = 0;
    for (a, in_a) in firsts {
        pairs += 1;
        for ((op, wide, _), image) in meaning.alu.iter().zip(&images) {
            let want = numbers(*in_a).fold(0, |all, x| all | image[x]);
            let got = Number::alu(*op, *wide, a, b);
            let lost = want & !members(&got);
            assert!(
                lost == 0,
                "{op:?} {wide}: {a:?} and {b:?} give {got:?} without {lost:#x}"
            );
        }
        for (op, wide, table) in &meaning.compare {
            for side in [true, false] {
                let with = |x: usize| in_b & if side { table[x] } else { !table[x] };
                let xs = numbers(*in_a)
                    .filter(|&x| with(x) != 0)
                    .fold(0, |all, x| all | 1 << x);
                let ys = numbers(*in_a).fold(0, |all, x| all | with(x));
                let got = refine(*op, *wide, a, b, side);
                let (left_a, left_b) = got.map_or((0, 0), |(a, b)| (members(&a), members(&b)));
                assert!(
                    xs & !left_a == 0 && ys & !left_b == 0,
                    "{op:?} {wide} {side}: {a:?} and {b:?} give {got:?} without {xs:#x} or {ys:#x}"
                );
                // Nothing comes back that was not there.
                assert!(
                    left_a & !in_a == 0 && left_b & !in_b == 0,
                    "{op:?} {wide} {side}: {a:?} and {b:?} give {got:?}"
                );
            }
        }
        let met = a.meet(b);
        let got = met.as_ref().map_or(0, members);
        assert_eq!(
            in_a & in_b,
            got & in_a & in_b,
            "{a:?} and {b:?} meet in {met:?}"
        );
        for step in STEPS {
            for stops in [&[][..], &[4, 5, 6, 11, 12, 13]] {
                let joined = join(a, b, step, stops);
                assert_eq!(
                    (in_a | in_b) & !members(&joined),
                    0,
                    "{a:?} and {b:?} by {step:?} are {joined:?}"
                );
            }
        }
        assert!(!a.is_subset(b) || in_a & !in_b == 0, "{a:?} and {b:?}");
    }
    pairs
}

/// All that is done to one value.
fn check_alone<const B: u32, const H: u32>((set, inside): &Known<B, H>) {
    let holds = |what: &str, got: Number<B, H>, of: &dyn Fn(u64) -> u64| {
        let want = numbers(*inside).fold(0, |all, x| all | 1u64 << of(x as u64));
        let lost = want & !members(&got);
        assert!(lost == 0, "{what} of {set:?} is {got:?} without {lost:#x}");
    };
    for bits in 1..=B {
        holds("zero extension", set.zero_extend(bits), &|x| x & ones(bits));
        holds("sign extension", set.sign_extend(bits), &|x| {
            signed(bits, x) as u64 & ones(B)
        });
    }
    holds("negative", set.neg(true), &|x| x.wrapping_neg() & ones(B));
    holds("low negative", set.neg(false), &|x| {
        x.wrapping_neg() & ones(H)
    });
    holds("all of it", set.reduced().expect("it has members"), &|x| x);
    if let Some(x) = set.known() {
        assert_eq!(*inside, 1 << x, "{set:?}");
        assert_eq!(*set, Number::constant(x));
    }
}

/// One in `each` pairs of `all`, on all processors; at least `expected` of them.
fn check_all<const B: u32, const H: u32>(all: &[Known<B, H>], each: usize, expected: u64) {
    let meaning = Meaning::of::<B, H>();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let pairs: u64 = std::thread::scope(|scope| {
        let part = |thread| {
            let seconds = all.iter().enumerate().skip(thread).step_by(threads);
            let meaning = &meaning;
            move || -> u64 {
                seconds
                    .map(|(i, second)| {
                        // A prime that no length has in common spreads them.
                        let firsts = all.iter().skip(i * 7919 % each).step_by(each);
                        check_pairs(meaning, firsts, second)
                    })
                    .sum()
            }
        };
        let running: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(part(thread)))
            .collect();
        let done = running
            .into_iter()
            .map(|thread| thread.join().expect("no check fails"));
        done.sum()
    });
    assert!(pairs >= expected, "{pairs}");
}

fn reduced<const B: u32, const H: u32>(parts: &[Vec<Number<B, H>>]) -> Vec<Number<B, H>> {
    distinct(parts.iter().flatten().filter_map(|set| set.reduced()))
}

/// Every value that two parts of those given say something of; one in `each` of their pairs is met,
/// and that keeps what is in both.
fn of_two_parts<const B: u32, const H: u32>(
    parts: &[Vec<Number<B, H>>],
    each: usize,
) -> Vec<Number<B, H>> {
    let mut all = HashSet::new();
    for (i, part) in parts.iter().enumerate() {
        let with: Vec<Known<B, H>> = known(parts[..i].concat());
        for (j, one) in part.iter().enumerate() {
            let inside = members(one);
            for (other, in_other) in with.iter().skip(j * 7919 % each).step_by(each) {
                let met = one.meet(other);
                let left = met.as_ref().map_or(0, members);
                assert_eq!(
                    inside & in_other & !left,
                    0,
                    "{one:?} and {other:?} meet in {met:?}"
                );
                all.extend(met);
            }
        }
    }
    all.into_iter().collect()
}

#[test]
fn pairs_of_values_of_six_bits_are_sound() {
    let all = known(reduced(&of_one_part::<6, 3>()));
    assert_eq!(all.len(), 3741);
    all.iter().for_each(check_alone);
    check_all(&all, 499, 27_000);
}

#[test]
#[ignore = "cargo xtask test --deep"]
fn all_pairs_of_values_of_six_bits_with_one_part_are_sound() {
    let all = known(reduced(&of_one_part::<6, 3>()));
    check_all(&all, 1, 3741 * 3741);
}

#[test]
fn parts_of_six_bits_sharpen_each_other() {
    let some = of_two_parts(&of_one_part::<6, 3>(), 199);
    assert!(some.len() > 6_000, "{}", some.len());
    known(some).iter().step_by(4).for_each(check_alone);
}

#[test]
#[ignore = "cargo xtask test --deep"]
fn values_of_six_bits_with_two_parts_are_sound() {
    let mut all = of_two_parts(&of_one_part::<6, 3>(), 1);
    assert!(all.len() > 490_000, "{}", all.len());
    all.sort_by_key(|set| {
        (
            set.bits.value,
            set.bits.mask,
            set.u64.min,
            set.u64.max,
            set.s64.min,
            set.u32.min,
            set.s32.min,
        )
    });
    let all = known(all);
    all.iter().for_each(check_alone);
    check_all(&all, 99_991, 2_000_000);
}

/// All that four bits have: every value that differs from others when its parts have sharpened each
/// other.
#[test]
#[ignore = "cargo xtask test --deep"]
fn values_of_four_bits_are_sound() {
    let parts = of_one_part::<4, 2>();
    let all = parts.iter().fold(vec![Number::UNKNOWN], |all, part| {
        distinct(
            all.iter()
                .flat_map(|a| part.iter().filter_map(move |b| a.meet(b))),
        )
    });
    assert!(all.len() > 17_000, "{}", all.len());
    let all = known(all);
    all.iter().for_each(check_alone);
    check_all(&all, 61, 4_900_000);
}

#[test]
fn pairs_of_values_of_four_bits_are_sound() {
    let all = known(reduced(&of_one_part::<4, 2>()));
    all.iter().for_each(check_alone);
    check_all(&all, 7, 9_000);
}

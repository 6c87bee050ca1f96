//! Making a state larger on purpose, so that it covers others that are about to come.
//!
//! Knowing less is always sound. Where very many states meet at one point, following each is
//! hopeless, although often one that holds them all would do: an accumulator that took another path
//! each round, a running maximum.

use warpbpf_ebpf::{AluOp, Code, Insn, Source};

use super::interval::{Bound, Interval};
use super::pointer::{Target, Value};
use super::scalar::Number;
use super::state::State;
use super::tnum::Tnum;
use super::width::ones;

/// How far to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// To the smallest set that holds both.
    Hull,
    /// To a set with bounds from a short list and the program's own, so that few steps lead to the
    /// largest.
    Leap,
    /// The same with a very short list.
    Far,
}

/// Bounds that the numbers of `code` may well have: what they are compared with or start from, in
/// order.
pub fn stops(code: &Code) -> Vec<u64> {
    let constant = |insn: &Insn| match *insn {
        Insn::Jump {
            src: Source::Imm(x),
            ..
        }
        | Insn::Alu {
            op: AluOp::Mov,
            src: Source::Imm(x),
            ..
        } => u64::try_from(x).ok(),
        _ => None,
    };
    let near = |x: u64| [x.saturating_sub(1), x, x + 1];
    let constants = code.insns().iter().filter_map(constant);
    let mut stops: Vec<u64> = constants.flat_map(near).collect();
    stops.sort_unstable();
    stops.dedup();
    stops
}

/// Makes `state` larger, toward holding `seen` too: numbers and offsets that differ are joined. The
/// result holds all of `state`; of `seen` as much as has the same shape.
pub fn widen(state: &mut State, seen: &State, step: Step, stops: &[u64]) {
    for (frame, seen) in state.frames.iter_mut().zip(&seen.frames) {
        for (value, seen) in frame.regs.iter_mut().zip(&seen.regs) {
            widen_value(value, seen, step, stops);
        }
        let places: Vec<_> = frame.stack.places().collect();
        for ((offset, size), value) in places.into_iter().zip(frame.stack.values_mut()) {
            if let Ok(seen) = seen.stack.read(i64::from(offset), u32::from(size)) {
                widen_value(value, &seen, step, stops);
            }
        }
    }
}

fn widen_value(value: &mut Value, seen: &Value, step: Step, stops: &[u64]) {
    match (value, seen) {
        (
            Value::Number { scalar, id, plus },
            Value::Number {
                scalar: seen,
                id: seen_id,
                plus: seen_plus,
            },
        ) => {
            if scalar != seen {
                *scalar = join(scalar, seen, step, stops);
                // The copies may be joined with something else.
                (*id, *plus) = (0, 0);
            } else if *seen_id != 0 && plus != seen_plus {
                // A copy that another number was added to in each round: it would never look the
                // same.
                (*id, *plus) = (0, 0);
            }
        }
        (Value::Pointer(p), Value::Pointer(q))
            if p.target == q.target
                && p.offset != q.offset
                && !matches!(
                    p.target,
                    Target::Context | Target::Map(_) | Target::Function(_) | Target::Dynptr { .. }
                ) =>
        {
            p.offset = join(&p.offset, &q.offset, step, stops);
        }
        _ => {}
    }
}

/// A set that holds both. Where `a` stays inside the bounds of `b`, which came before, these stay;
/// where it goes beyond, it may go on so.
pub fn join<const BITS: u32, const HALF: u32>(
    a: &Number<BITS, HALF>,
    b: &Number<BITS, HALF>,
    step: Step,
    stops: &[u64],
) -> Number<BITS, HALF> {
    let above = |x| above::<BITS, HALF>(x, step, stops);
    let mut mask = a.bits.mask | b.bits.mask | (a.bits.value ^ b.bits.value);
    if step == Step::Far && mask != b.bits.mask {
        // Else the bits would grow one by one. Zeros at the low end stay.
        mask |= above(mask) >> mask.trailing_zeros() << mask.trailing_zeros();
    }
    let bits = Tnum {
        value: a.bits.value & !mask,
        mask,
    };
    let (u64, s64) = (hull(a.u64, b.u64), hull(a.s64, b.s64));
    let all = match step {
        Step::Hull => Number {
            bits,
            u64,
            s64,
            u32: hull(a.u32, b.u32),
            s32: hull(a.s32, b.s32),
        },
        Step::Leap | Step::Far => Number {
            bits,
            u64: Interval {
                min: if u64.min == b.u64.min { u64.min } else { 0 },
                max: if u64.max == b.u64.max {
                    u64.max
                } else {
                    above(u64.max)
                },
            },
            s64: Interval {
                min: match u64::try_from(s64.min) {
                    _ if s64.min == b.s64.min => s64.min,
                    Ok(_) => 0,
                    Err(_) => Interval::<i64, BITS>::FULL.min,
                },
                max: match u64::try_from(s64.max) {
                    _ if s64.max == b.s64.max => s64.max,
                    Ok(max) => above(max) as i64,
                    Err(_) => -1,
                },
            },
            ..Number::UNKNOWN
        },
    };
    all.reduced().unwrap_or(Number::UNKNOWN)
}

fn hull<T: Bound, const BITS: u32>(
    a: Interval<T, BITS>,
    b: Interval<T, BITS>,
) -> Interval<T, BITS> {
    Interval {
        min: a.min.min(b.min),
        max: a.max.max(b.max),
    }
}

/// The next bound of the list.
fn above<const BITS: u32, const HALF: u32>(x: u64, step: Step, stops: &[u64]) -> u64 {
    let all = ones(BITS);
    match step {
        Step::Hull => x,
        Step::Leap => {
            let next = stops.get(stops.partition_point(|stop| *stop < x));
            next.copied().unwrap_or(all).min(filled(x))
        }
        Step::Far => {
            let far = [BITS / 8, BITS / 4, HALF - 1, HALF, BITS - 1].map(|bits| ones(bits.max(1)));
            far.into_iter().find(|far| x <= *far).unwrap_or(all)
        }
    }
}

/// The next number of the form `2^n - 1`.
fn filled(x: u64) -> u64 {
    match x {
        0 => 0,
        _ => u64::MAX >> x.leading_zeros(),
    }
}

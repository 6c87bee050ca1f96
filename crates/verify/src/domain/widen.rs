//! Making a state larger on purpose, so that it covers others that are about to come.
//!
//! Knowing less is always sound. Where very many states meet at one point, following each is hopeless, although often
//! one that holds them all would do: an accumulator that took another path each round, a running maximum.

use super::interval::{Bound, Interval};
use super::pointer::{Target, Value};
use super::scalar::Scalar;
use super::state::State;
use super::tnum::Tnum;

/// How far to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// To the smallest set that holds both.
    Hull,
    /// To a set with bounds from a short list, so that few steps lead to the largest.
    Leap,
}

/// Makes `state` larger, toward holding `seen` too: numbers and offsets that differ are joined. The result holds all
/// of `state`; of `seen` as much as has the same shape.
pub fn widen(state: &mut State, seen: &State, step: Step) {
    for (frame, seen) in state.frames.iter_mut().zip(&seen.frames) {
        for (value, seen) in frame.regs.iter_mut().zip(&seen.regs) {
            widen_value(value, seen, step);
        }
        let places: Vec<_> = frame.stack.places().collect();
        for ((offset, size), value) in places.into_iter().zip(frame.stack.values_mut()) {
            if let Ok(seen) = seen.stack.read(i64::from(offset), u32::from(size)) {
                widen_value(value, &seen, step);
            }
        }
    }
}

fn widen_value(value: &mut Value, seen: &Value, step: Step) {
    match (value, seen) {
        (Value::Number { scalar, id }, Value::Number { scalar: seen, .. }) if scalar != seen => {
            *scalar = join(scalar, seen, step);
            // The copies may be joined with something else.
            *id = 0;
        }
        (Value::Pointer(p), Value::Pointer(q))
            if p.target == q.target
                && p.offset != q.offset
                && !matches!(p.target, Target::Context | Target::Map(_)) =>
        {
            p.offset = join(&p.offset, &q.offset, step);
        }
        _ => {}
    }
}

/// A set that holds both.
pub fn join(a: &Scalar, b: &Scalar, step: Step) -> Scalar {
    let mask = a.bits.mask | b.bits.mask | (a.bits.value ^ b.bits.value);
    let bits = Tnum {
        value: a.bits.value & !mask,
        mask,
    };
    let (u64, s64) = (hull(a.u64, b.u64), hull(a.s64, b.s64));
    let all = match step {
        Step::Hull => Scalar {
            bits,
            u64,
            s64,
            u32: hull(a.u32, b.u32),
            s32: hull(a.s32, b.s32),
        },
        Step::Leap => Scalar {
            bits,
            u64: Interval {
                min: if a.u64.min == b.u64.min { u64.min } else { 0 },
                max: if a.u64.max == b.u64.max {
                    u64.max
                } else {
                    ones(u64.max)
                },
            },
            s64: Interval {
                min: match u64::try_from(s64.min) {
                    _ if a.s64.min == b.s64.min => s64.min,
                    Ok(_) => 0,
                    Err(_) => i64::MIN,
                },
                max: match u64::try_from(s64.max) {
                    _ if a.s64.max == b.s64.max => s64.max,
                    Ok(max) => ones(max) as i64,
                    Err(_) => -1,
                },
            },
            ..Scalar::UNKNOWN
        },
    };
    all.reduced().unwrap_or(Scalar::UNKNOWN)
}

fn hull<T: Bound>(a: Interval<T>, b: Interval<T>) -> Interval<T> {
    Interval {
        min: a.min.min(b.min),
        max: a.max.max(b.max),
    }
}

/// The next number of the form `2^n - 1`.
fn ones(x: u64) -> u64 {
    match x.leading_zeros() {
        64 => 0,
        zeros => u64::MAX >> zeros,
    }
}

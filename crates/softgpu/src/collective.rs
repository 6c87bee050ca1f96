//! Warp-synchronous instructions: shuffles, votes, matches, reductions. They wait until the lanes
//! of their member mask have met; which lanes those are is the caller's business (`control.rs`),
//! here they are all there.

use crate::atomics::combine;
use crate::op::operand::{AtomicOp, NOWHERE, Row, Type};
use crate::op::{Shuffle, ShuffleKind, Together, Vote};
use crate::position::Position;
use crate::warp::{Lanes, Warp, lanes};

/// Executes for the lanes `set`, all of one member mask.
pub(crate) fn execute(what: &Together, warp: &Warp, at: Position, set: u32) {
    match what {
        Together::Shuffle(shuffle) => exchange(shuffle, warp, at, set),
        Together::Vote {
            kind,
            d,
            p,
            negated,
        } => {
            let ballot = truths(warp.row(at.base, *p), set, *negated);
            let value = match kind {
                Vote::All => u64::from(ballot == set),
                Vote::Any => u64::from(ballot != 0),
                Vote::Uniform => u64::from(ballot == 0 || ballot == set),
                Vote::Ballot => u64::from(ballot),
            };
            put(warp, at, *d, set, |_| value);
        }
        Together::Match { all, wide, d, p, s } => {
            let row = warp.row(at.base, *s);
            let low = if *wide { u64::MAX } else { 0xffff_ffff };
            let equal = |value| {
                lanes(set)
                    .filter(|&l| row[l].get() & low == value)
                    .fold(0u32, |bits, l| bits | 1 << l)
            };
            if *all {
                let same = equal(row[set.trailing_zeros() as usize & 31].get() & low) == set;
                put(warp, at, *d, set, |_| if same { u64::from(set) } else { 0 });
                put(warp, at, *p, set, |_| u64::from(same));
            } else {
                let groups: Vec<(usize, u32)> =
                    lanes(set).map(|l| (l, equal(row[l].get() & low))).collect();
                for (lane, group) in groups {
                    put(warp, at, *d, 1 << lane, |_| u64::from(group));
                }
            }
        }
        Together::Reduce { op, ty, d, s } => {
            let row = warp.row(at.base, *s);
            let value = reduce(*op, *ty, lanes(set).map(|lane| row[lane].get()));
            put(warp, at, *d, set, |_| value);
        }
        Together::Elect { d, p } => {
            let leader = set.trailing_zeros();
            put(warp, at, *d, set, |_| u64::from(leader));
            put(warp, at, *p, set, |lane| u64::from(lane as u32 == leader));
        }
    }
}

fn reduce(op: AtomicOp, ty: Type, values: impl Iterator<Item = u64>) -> u64 {
    values
        .reduce(|x, y| combine(op, ty, x, y, 0, false) & 0xffff_ffff)
        .unwrap_or(0)
}

fn put(warp: &Warp, at: Position, d: Row, set: u32, value: impl Fn(usize) -> u64) {
    if d != NOWHERE {
        let row = warp.row(at.base, d);
        lanes(set).for_each(|lane| row[lane].set(value(lane)));
    }
}

/// Lanes of `set` whose predicate holds.
pub(crate) fn truths(row: &Lanes, set: u32, negated: bool) -> u32 {
    let bits = lanes(set).fold(0u32, |bits, lane| {
        bits | ((row[lane].get() & 1) as u32) << lane
    });
    if negated { set & !bits } else { bits }
}

/// `shfl`, as the pseudocode of the ISA has it. A source lane that does not take part gives the own
/// value: the ISA leaves it undefined and this choice is reproducible.
fn exchange(s: &Shuffle, warp: &Warp, at: Position, set: u32) {
    let source = warp.row(at.base, s.s);
    let values: [u64; 32] = std::array::from_fn(|lane| source[lane].get());
    let (b, c) = (warp.row(at.base, s.lane), warp.row(at.base, s.clamp));
    for lane in lanes(set) {
        let (me, b, c) = (lane as u32, b[lane].get() as u32 & 31, c[lane].get() as u32);
        let (clamp, segment) = (c & 31, c >> 8 & 31);
        let max = me & segment | clamp & !segment;
        let min = me & segment;
        let (from, inside) = match s.kind {
            ShuffleKind::Up => (me.wrapping_sub(b), me as i32 - b as i32 >= max as i32),
            ShuffleKind::Down => (me + b, me + b <= max),
            ShuffleKind::Butterfly => (me ^ b, me ^ b <= max),
            ShuffleKind::Index => {
                let from = min | b & !segment;
                (from, from <= max)
            }
        };
        let from = if inside { from & 31 } else { me };
        let value = if set >> from & 1 == 1 {
            values[from as usize]
        } else {
            values[lane]
        };
        if s.d != NOWHERE {
            warp.row(at.base, s.d)[lane].set(value);
        }
        if s.p != NOWHERE {
            warp.row(at.base, s.p)[lane].set(u64::from(inside));
        }
    }
}

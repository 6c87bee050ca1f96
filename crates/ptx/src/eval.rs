//! The meaning of every lane-local PTX operation, once: the soft GPU runs it, constant folding
//! computes with it, and hardware tests compare against it.
//!
//! Values are raw bits in a `u64` ([`Bits`]). A source is cut to its operand's width, so that bits
//! above it do not matter; a result is zero-extended from its own width, with one exception: `cvt`
//! to `.s8` and `.s16` sign-extends, because those may be read from a wider register. Predicates
//! and carries are 0 or 1. Immediates are converted to the type's bits by the caller.
//!
//! An instruction is decoded once into an [`Op`], which has no operands, and evaluated for one lane
//! ([`eval()`]) or a warp ([`eval_lanes`], [`eval_warp`]). Both go through the same closures, so a
//! warp cannot mean something else than its lanes. Modifiers that are not understood make
//! [`Op::decode`] fail: a guess would be a wrong result.
//!
//! # What the PTX ISA leaves open
//! Where it does, the choice is what an H200 gives, compared on random operands for every operation
//! decoded here:
//! - Integer division by zero and its remainder give all ones.
//! - `.approx` and `.full` operations give the correctly rounded result (of the host's function for
//!   the transcendental ones): within their error bounds, but not the hardware's bits.
//! - A NaN result is `0x7fffffff` for f32, `0x7fff` for f16 and bf16. For f64 a NaN source is
//!   passed on, quieted (of several the last; `fma` prefers the second, `div` the first), and a NaN
//!   that comes from numbers is `0xfff8000000000000`. Conversions between f64 and narrower types
//!   keep sign and payload.
//! - `bfe` and `bfi` on 64 bits look at all 32 bits of position and length, where the ISA speaks of
//!   the low byte.
//! - `mul` and `add` are never contracted, though ptxas may do so without a rounding modifier.

mod bits;
mod compare;
mod convert;
mod float;
mod format;
mod int;
mod lanes;
mod narrow;
mod ty;

pub use bits::BitOp;
pub use compare::{Compare, Select};
pub use convert::Convert;
pub use float::Float;
pub use int::{Carry, Int};
pub use lanes::{Bits, LANES, SOURCES};
pub use ty::Ty;

use lanes::{Lanes, One, Warp};

/// A decoded operation without its operands. Equal operations have equal meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// `mov` of one register. Packing and unpacking vectors moves bits between registers and is the
    /// caller's.
    Mov(Ty),
    /// Integer arithmetic.
    Int(Int),
    /// Extended precision: the carry is the last source (`addc`, `subc`, `madc`) and the second
    /// result.
    Carry(Carry),
    /// Logic, shifts and bit fields.
    Bit(BitOp),
    /// `setp`, `set` and `testp`.
    Compare(Compare),
    /// `selp` and `slct`.
    Select(Select),
    /// Floating point arithmetic of all widths.
    Float(Float),
    /// `cvt` and `cvt.pack`.
    Convert(Convert),
}

impl Op {
    /// Decodes an instruction's opcode and modifiers. `None` for an instruction that is not
    /// lane-local (memory, control flow, anything across lanes), unknown, or with a modifier that
    /// is not understood.
    ///
    /// # Examples
    /// ```
    /// use warpbpf_ptx::eval::{Op, eval};
    /// let op = Op::decode("mad", &["lo", "s32"]).unwrap();
    /// assert_eq!(eval(op, &[7, 6, u64::from(-2i32 as u32)]), [40, 0]);
    /// assert_eq!(Op::decode("ld", &["global", "u32"]), None);
    /// ```
    pub fn decode(opcode: &str, modifiers: &[&str]) -> Option<Op> {
        match opcode {
            "mov" => match modifiers {
                [ty] => Ty::parse(ty).map(Op::Mov),
                _ => None,
            },
            "setp" | "set" | "testp" => Compare::decode(opcode, modifiers).map(Op::Compare),
            "selp" | "slct" => Select::decode(opcode, modifiers).map(Op::Select),
            "cvt" => Convert::decode(modifiers).map(Op::Convert),
            _ => None
                .or_else(|| BitOp::decode(opcode, modifiers).map(Op::Bit))
                .or_else(|| Carry::decode(opcode, modifiers).map(Op::Carry))
                .or_else(|| Int::decode(opcode, modifiers).map(Op::Int))
                .or_else(|| Float::decode(opcode, modifiers).map(Op::Float)),
        }
    }

    /// The operation for an instruction written with `count` source operands (an implicit carry not
    /// counted): the same, or its three-source form (`min`, `max`). `None` if it does not take that
    /// many.
    pub fn for_sources(self, count: usize) -> Option<Op> {
        match self {
            Op::Float(op) => op.for_sources(count).map(Op::Float),
            Op::Mov(_)
            | Op::Int(_)
            | Op::Bit(_)
            | Op::Compare(_)
            | Op::Select(_)
            | Op::Convert(_)
            | Op::Carry(_) => {
                (self.sources() - usize::from(self.reads_carry()) == count).then_some(self)
            }
        }
    }

    /// How many sources it has, an implicit carry (the last one) included. `cvt.pack` without its
    /// third operand takes 0 for it.
    pub fn sources(self) -> usize {
        match self {
            Op::Mov(_) => 1,
            Op::Int(op) => op.sources(),
            Op::Carry(op) => op.sources(),
            Op::Bit(op) => op.sources(),
            Op::Compare(op) => op.sources(),
            Op::Select(_) => 3,
            Op::Float(op) => op.sources(),
            Op::Convert(op) => op.sources(),
        }
    }

    /// True if the last source is the carry flag `CC.CF`.
    pub fn reads_carry(self) -> bool {
        matches!(self, Op::Carry(op) if op.reads_carry())
    }

    /// True if the second result is to be written to the carry flag `CC.CF`.
    pub fn writes_carry(self) -> bool {
        matches!(self, Op::Carry(op) if op.writes_carry())
    }

    fn run(self, lanes: impl Lanes) {
        match self {
            Op::Mov(ty) => {
                let mask = ty.mask();
                lanes.map(|[a, ..]| a & mask);
            }
            Op::Int(op) => op.run(lanes),
            Op::Carry(op) => op.run(lanes),
            Op::Bit(op) => op.run(lanes),
            Op::Compare(op) => op.run(lanes),
            Op::Select(op) => op.run(lanes),
            Op::Float(op) => op.run(lanes),
            Op::Convert(op) => op.run(lanes),
        }
    }
}

/// Evaluates one lane: the result, and the second result where there is one (`q` of `setp p|q`, the
/// predicate of `lop3 d|p`, the carry), else 0. Missing sources are 0, those beyond [`SOURCES`] are
/// ignored.
pub fn eval(op: Op, sources: &[Bits]) -> [Bits; 2] {
    let mut one = One {
        sources: [0; SOURCES],
        results: [0; 2],
    };
    for (slot, source) in one.sources.iter_mut().zip(sources) {
        *slot = *source;
    }
    op.run(&mut one);
    one.results
}

/// Evaluates the lanes in `mask` of an operation with at most three sources; other lanes of `dst`
/// are left alone. A second result is dropped, a fourth source is 0: [`eval_warp`] has all of them.
pub fn eval_lanes(
    op: Op,
    dst: &mut [Bits; LANES],
    a: &[Bits; LANES],
    b: &[Bits; LANES],
    c: &[Bits; LANES],
    mask: u32,
) {
    op.run(Warp {
        dst,
        second: None,
        sources: [a, b, c, &[0; LANES], &[0; LANES]],
        mask,
    });
}

/// Evaluates the lanes in `mask` of any operation; other lanes of the results are left alone.
pub fn eval_warp(
    op: Op,
    dst: &mut [Bits; LANES],
    second: &mut [Bits; LANES],
    sources: [&[Bits; LANES]; SOURCES],
    mask: u32,
) {
    op.run(Warp {
        dst,
        second: Some(second),
        sources,
        mask,
    });
}

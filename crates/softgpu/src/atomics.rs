//! What an atomic makes of the old value (PTX ISA, `atom`). Pure: memory and redux both use it.

use half::{bf16, f16};

use crate::op::operand::{AtomicOp, Type};

/// The new value. `c` is the third operand of `cas`; `flush` makes f32 subnormals zeroes.
#[inline]
pub(crate) fn combine(op: AtomicOp, ty: Type, old: u64, b: u64, c: u64, flush: bool) -> u64 {
    match op {
        AtomicOp::Exchange => b,
        AtomicOp::CompareAndSwap => {
            let same = match ty.bytes() {
                2 => old as u16 == b as u16,
                4 => old as u32 == b as u32,
                _ => old == b,
            };
            if same { c } else { old }
        }
        AtomicOp::And => old & b,
        AtomicOp::Or => old | b,
        AtomicOp::Xor => old ^ b,
        AtomicOp::Increment => {
            let (old, b) = (old as u32, b as u32);
            u64::from(if old >= b { 0 } else { old + 1 })
        }
        AtomicOp::Decrement => {
            let (old, b) = (old as u32, b as u32);
            u64::from(if old == 0 || old > b { b } else { old - 1 })
        }
        AtomicOp::Add => match ty {
            Type::F32 => u64::from(add_f32(old as u32, b as u32, flush)),
            Type::F64 => (f64::from_bits(old) + f64::from_bits(b)).to_bits(),
            Type::F16 => u64::from(half(old as u16, b as u16, |a, b| a + b)),
            Type::Bf16 => u64::from(brain(old as u16, b as u16, |a, b| a + b)),
            Type::F16x2 => pairwise(old, b, |x, y| half(x, y, |a, b| a + b)),
            Type::Bf16x2 => pairwise(old, b, |x, y| brain(x, y, |a, b| a + b)),
            Type::U32 | Type::S32 | Type::U64 | Type::S64 | Type::B16 | Type::B32 | Type::B64 => {
                old.wrapping_add(b)
            }
        },
        AtomicOp::Min => least(ty, old, b, false),
        AtomicOp::Max => least(ty, old, b, true),
    }
}

fn least(ty: Type, old: u64, b: u64, greatest: bool) -> u64 {
    let first = match ty {
        Type::S32 => (old as i32) < b as i32,
        Type::S64 => (old as i64) < b as i64,
        Type::U32 | Type::B32 => (old as u32) < b as u32,
        Type::U64 | Type::B64 => old < b,
        Type::B16 => (old as u16) < b as u16,
        Type::F32 => {
            let (x, y) = (f32::from_bits(old as u32), f32::from_bits(b as u32));
            return u64::from(if greatest { x.max(y) } else { x.min(y) }.to_bits());
        }
        Type::F64 => {
            let (x, y) = (f64::from_bits(old), f64::from_bits(b));
            return if greatest { x.max(y) } else { x.min(y) }.to_bits();
        }
        Type::F16 => return u64::from(half(old as u16, b as u16, pick(greatest))),
        Type::Bf16 => return u64::from(brain(old as u16, b as u16, pick(greatest))),
        Type::F16x2 => return pairwise(old, b, |x, y| half(x, y, pick(greatest))),
        Type::Bf16x2 => return pairwise(old, b, |x, y| brain(x, y, pick(greatest))),
    };
    if first != greatest { old } else { b }
}

fn pick(greatest: bool) -> fn(f32, f32) -> f32 {
    if greatest { f32::max } else { f32::min }
}

fn add_f32(old: u32, b: u32, flush: bool) -> u32 {
    let keep = |x: f32| {
        if flush && x.is_subnormal() {
            0f32.copysign(x)
        } else {
            x
        }
    };
    keep(keep(f32::from_bits(old)) + keep(f32::from_bits(b))).to_bits()
}

fn half(x: u16, y: u16, f: impl Fn(f32, f32) -> f32) -> u16 {
    f16::from_f32(f(f16::from_bits(x).to_f32(), f16::from_bits(y).to_f32())).to_bits()
}

fn brain(x: u16, y: u16, f: impl Fn(f32, f32) -> f32) -> u16 {
    bf16::from_f32(f(bf16::from_bits(x).to_f32(), bf16::from_bits(y).to_f32())).to_bits()
}

fn pairwise(x: u64, y: u64, f: impl Fn(u16, u16) -> u16) -> u64 {
    u64::from(f(x as u16, y as u16)) | u64::from(f((x >> 16) as u16, (y >> 16) as u16)) << 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers() {
        let go = |op, ty, old, b| combine(op, ty, old, b, 0, false);
        assert_eq!(go(AtomicOp::Increment, Type::U32, 5, 5), 0);
        assert_eq!(go(AtomicOp::Increment, Type::U32, 4, 5), 5);
        assert_eq!(go(AtomicOp::Decrement, Type::U32, 0, 9), 9);
        assert_eq!(go(AtomicOp::Decrement, Type::U32, 10, 9), 9);
        assert_eq!(go(AtomicOp::Decrement, Type::U32, 9, 9), 8);
        assert_eq!(go(AtomicOp::Min, Type::S32, 0xffff_ffff, 1), 0xffff_ffff);
        assert_eq!(go(AtomicOp::Min, Type::U32, 0xffff_ffff, 1), 1);
        assert_eq!(go(AtomicOp::Max, Type::S64, u64::MAX, 1), 1);
        assert_eq!(
            combine(AtomicOp::CompareAndSwap, Type::B16, 3, 0x1_0003, 7, false),
            7
        );
        assert_eq!(
            combine(AtomicOp::CompareAndSwap, Type::B32, 3, 4, 7, false),
            3
        );
    }

    #[test]
    fn floats() {
        let tiny = 1u64;
        assert_eq!(combine(AtomicOp::Add, Type::F32, tiny, tiny, 0, true), 0);
        assert_eq!(combine(AtomicOp::Add, Type::F32, tiny, tiny, 0, false), 2);
        let two = pairwise(0x3c00_3c00, 0x3c00_4000, |x, y| half(x, y, |a, b| a + b));
        assert_eq!(two, 0x4000_4200);
    }
}

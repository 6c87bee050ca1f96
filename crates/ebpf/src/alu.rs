//! What arithmetic, byte order and conditions mean: pure functions, shared by the interpreter,
//! constant folding and tests of other engines.
//!
//! RFC 9669 §4. A 32-bit operation sees the low halves and zeroes the upper half of its result.

use crate::insn::{AluOp, EndKind, JumpOp};

/// `dst op src`. `src` is already sign-extended if it was an immediate.
pub fn alu(wide: bool, op: AluOp, dst: u64, src: u64) -> u64 {
    alu_of::<64, 32>(wide, op, dst, src)
}

/// [`alu`] for numbers of `BITS` bits, at most 64, with a low half of `HALF` bits. eBPF has those
/// of 64 and 32; what is generic in its width can be tested at few bits with all the numbers that
/// there are.
pub fn alu_of<const BITS: u32, const HALF: u32>(wide: bool, op: AluOp, dst: u64, src: u64) -> u64 {
    if wide {
        in_bits::<BITS>(op, dst, src)
    } else {
        in_bits::<HALF>(op, dst, src)
    }
}

/// The bits of a shift amount that count for numbers of `bits` bits: the amount modulo the width,
/// where that is a power of two. Otherwise the amount may be larger than the width.
pub const fn shift_mask(bits: u32) -> u64 {
    bits.next_power_of_two() as u64 - 1
}

fn in_bits<const BITS: u32>(op: AluOp, x: u64, y: u64) -> u64 {
    let (all, spare) = (u64::MAX >> (64 - BITS), 64 - BITS);
    let (x, y) = (x & all, y & all);
    let signed = |x: u64| (x << spare) as i64 >> spare;
    let (sx, sy) = (signed(x), signed(y));
    let amount = (y & shift_mask(BITS)) as u32;
    let result = match op {
        AluOp::Add => x.wrapping_add(y),
        AluOp::Sub => x.wrapping_sub(y),
        AluOp::Mul => x.wrapping_mul(y),
        AluOp::Div => x.checked_div(y).unwrap_or(0),
        AluOp::SDiv if sy == 0 => 0,
        AluOp::SDiv => sx.wrapping_div(sy) as u64,
        AluOp::Or => x | y,
        AluOp::And => x & y,
        AluOp::Lsh => x << amount,
        AluOp::Rsh => x >> amount,
        AluOp::Mod => x.checked_rem(y).unwrap_or(x),
        AluOp::SMod if sy == 0 => x,
        AluOp::SMod => sx.wrapping_rem(sy) as u64,
        AluOp::Xor => x ^ y,
        AluOp::Mov => y,
        AluOp::Arsh => (sx >> amount) as u64,
    };
    result & all
}

/// `-value`.
pub fn neg(wide: bool, value: u64) -> u64 {
    if wide {
        value.wrapping_neg()
    } else {
        u64::from((value as u32).wrapping_neg())
    }
}

/// Sign-extends the low `bits` (8, 16 or 32) of `value`; to 32 bits with a zero upper half if not
/// `wide`.
pub fn sign_extend(wide: bool, bits: u8, value: u64) -> u64 {
    let shift = 64 - u32::from(bits.clamp(1, 64));
    let value = ((value << shift) as i64 >> shift) as u64;
    if wide { value } else { u64::from(value as u32) }
}

/// Byte order on a little-endian machine; `bits` is 16, 32 or 64, and the value is truncated to it.
pub fn end(kind: EndKind, bits: u8, value: u64) -> u64 {
    let shift = 64 - u32::from(bits.clamp(8, 64));
    let truncated = (value << shift) >> shift;
    match kind {
        EndKind::ToLe => truncated,
        EndKind::ToBe | EndKind::Swap => (truncated << shift).swap_bytes(),
    }
}

/// Whether `dst op src` holds.
pub fn compare(wide: bool, op: JumpOp, dst: u64, src: u64) -> bool {
    let (x, y) = if wide {
        (dst, src)
    } else {
        (u64::from(dst as u32), u64::from(src as u32))
    };
    let (sx, sy) = if wide {
        (x as i64, y as i64)
    } else {
        (i64::from(x as i32), i64::from(y as i32))
    };
    match op {
        JumpOp::Eq => x == y,
        JumpOp::Ne => x != y,
        JumpOp::Set => x & y != 0,
        JumpOp::Gt => x > y,
        JumpOp::Ge => x >= y,
        JumpOp::Lt => x < y,
        JumpOp::Le => x <= y,
        JumpOp::SGt => sx > sy,
        JumpOp::SGe => sx >= sy,
        JumpOp::SLt => sx < sy,
        JumpOp::SLe => sx <= sy,
    }
}

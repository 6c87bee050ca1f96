//! What arithmetic, byte order and conditions mean: pure functions, shared by the interpreter, constant folding and
//! tests of other engines.
//!
//! RFC 9669 §4. A 32-bit operation sees the low halves and zeroes the upper half of its result.

use crate::insn::{AluOp, EndKind, JumpOp};

/// `dst op src`. `src` is already sign-extended if it was an immediate.
pub fn alu(wide: bool, op: AluOp, dst: u64, src: u64) -> u64 {
    if wide {
        alu64(op, dst, src)
    } else {
        u64::from(alu32(op, dst as u32, src as u32))
    }
}

fn alu64(op: AluOp, x: u64, y: u64) -> u64 {
    let (sx, sy) = (x as i64, y as i64);
    match op {
        AluOp::Add => x.wrapping_add(y),
        AluOp::Sub => x.wrapping_sub(y),
        AluOp::Mul => x.wrapping_mul(y),
        AluOp::Div => x.checked_div(y).unwrap_or(0),
        AluOp::SDiv => {
            if sy == 0 {
                0
            } else {
                sx.wrapping_div(sy) as u64
            }
        }
        AluOp::Or => x | y,
        AluOp::And => x & y,
        // The wrapping shifts of Rust take the count modulo the width, as eBPF does.
        AluOp::Lsh => x.wrapping_shl(y as u32),
        AluOp::Rsh => x.wrapping_shr(y as u32),
        AluOp::Mod => x.checked_rem(y).unwrap_or(x),
        AluOp::SMod => {
            if sy == 0 {
                x
            } else {
                sx.wrapping_rem(sy) as u64
            }
        }
        AluOp::Xor => x ^ y,
        AluOp::Mov => y,
        AluOp::Arsh => sx.wrapping_shr(y as u32) as u64,
    }
}

fn alu32(op: AluOp, x: u32, y: u32) -> u32 {
    let (sx, sy) = (x as i32, y as i32);
    match op {
        AluOp::Add => x.wrapping_add(y),
        AluOp::Sub => x.wrapping_sub(y),
        AluOp::Mul => x.wrapping_mul(y),
        AluOp::Div => x.checked_div(y).unwrap_or(0),
        AluOp::SDiv => {
            if sy == 0 {
                0
            } else {
                sx.wrapping_div(sy) as u32
            }
        }
        AluOp::Or => x | y,
        AluOp::And => x & y,
        AluOp::Lsh => x.wrapping_shl(y),
        AluOp::Rsh => x.wrapping_shr(y),
        AluOp::Mod => x.checked_rem(y).unwrap_or(x),
        AluOp::SMod => {
            if sy == 0 {
                x
            } else {
                sx.wrapping_rem(sy) as u32
            }
        }
        AluOp::Xor => x ^ y,
        AluOp::Mov => y,
        AluOp::Arsh => sx.wrapping_shr(y) as u32,
    }
}

/// `-value`.
pub fn neg(wide: bool, value: u64) -> u64 {
    if wide {
        value.wrapping_neg()
    } else {
        u64::from((value as u32).wrapping_neg())
    }
}

/// Sign-extends the low `bits` (8, 16 or 32) of `value`; to 32 bits with a zero upper half if not `wide`.
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

//! What the IR's pure operations mean, on constants. `opt_fold` evaluates with it; tests compare it
//! with the machine.

use crate::ir::{BinOp, Cond, Ty, UnOp};

/// The value of `op` on operands of type `ty` (a shift amount is a `b32` whatever `ty` is).
pub fn bin(op: BinOp, ty: Ty, a: u64, b: u64) -> u64 {
    let sign = |v: u64| match ty {
        Ty::B32 => i64::from(v as i32),
        Ty::B64 | Ty::Pred => v as i64,
    };
    let amount = (b as u32) & (ty.bits() - 1);
    let value = match op {
        BinOp::Add => a.wrapping_add(b),
        BinOp::Sub => a.wrapping_sub(b),
        BinOp::Mul => a.wrapping_mul(b),
        BinOp::And => a & b,
        BinOp::Or => a | b,
        BinOp::Xor => a ^ b,
        BinOp::Shl => a << amount,
        BinOp::Shr => a >> amount,
        BinOp::Sar => (sign(a) >> amount) as u64,
        BinOp::UMin => a.min(b),
        BinOp::UDiv | BinOp::MachineUDiv => a.checked_div(b).unwrap_or(0),
        BinOp::URem | BinOp::MachineURem => a.checked_rem(b).unwrap_or(a),
        BinOp::SDiv | BinOp::MachineSDiv => match sign(b) {
            0 => 0,
            b => sign(a).wrapping_div(b) as u64,
        },
        BinOp::SRem | BinOp::MachineSRem => match sign(b) {
            0 => a,
            b => sign(a).wrapping_rem(b) as u64,
        },
    };
    value & ty.mask()
}

/// The value of `op`; `a` has as many bits as the operand's type.
pub fn un(op: UnOp, a: u64) -> u64 {
    match op {
        UnOp::Trunc | UnOp::Zext => a & 0xffff_ffff,
        UnOp::Sext => a as i32 as i64 as u64,
        UnOp::Sext8 => u64::from(a as i8 as i32 as u32),
        UnOp::Sext16 => u64::from(a as i16 as i32 as u32),
        UnOp::Swap16 => u64::from((a as u16).swap_bytes()),
        UnOp::Swap32 => u64::from((a as u32).swap_bytes()),
        UnOp::Swap64 => a.swap_bytes(),
        UnOp::Not => a ^ 1,
    }
}

/// Whether `cond` holds of operands of type `ty`.
pub fn cmp(cond: Cond, ty: Ty, a: u64, b: u64) -> bool {
    let sign = |v: u64| match ty {
        Ty::B32 => i64::from(v as i32),
        Ty::B64 | Ty::Pred => v as i64,
    };
    match cond {
        Cond::Eq => a == b,
        Cond::Ne => a != b,
        Cond::Ult => a < b,
        Cond::Ule => a <= b,
        Cond::Ugt => a > b,
        Cond::Uge => a >= b,
        Cond::Slt => sign(a) < sign(b),
        Cond::Sle => sign(a) <= sign(b),
        Cond::Sgt => sign(a) > sign(b),
        Cond::Sge => sign(a) >= sign(b),
    }
}

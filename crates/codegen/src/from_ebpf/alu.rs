//! Arithmetic of RFC 9669 §4.1 and §4.2. A 32-bit operation works on the low halves and zeroes the
//! upper half of its result; writing it as truncate, operate, extend lets the later passes see
//! 32-bit code as such.

use warpbpf_ebpf::{AluOp, EndKind, Reg, Source};

use super::translator::Translator;
use crate::ir::{BinOp, Op, Ty, UnOp};

impl Translator<'_> {
    pub(super) fn alu(&mut self, wide: bool, op: AluOp, dst: Reg, src: Source) {
        let mut b = self.source(src);
        let mut a = self.reg(dst);
        if !wide {
            b = self.trunc(b);
            a = self.trunc(a);
        }
        let op = match op {
            AluOp::Mov => {
                let value = if wide { b } else { self.zext(b) };
                self.set_reg(dst, value);
                return;
            }
            AluOp::Add => BinOp::Add,
            AluOp::Sub => BinOp::Sub,
            AluOp::Mul => BinOp::Mul,
            AluOp::Div => BinOp::UDiv,
            AluOp::SDiv => BinOp::SDiv,
            AluOp::Mod => BinOp::URem,
            AluOp::SMod => BinOp::SRem,
            AluOp::Or => BinOp::Or,
            AluOp::And => BinOp::And,
            AluOp::Xor => BinOp::Xor,
            AluOp::Lsh => BinOp::Shl,
            AluOp::Rsh => BinOp::Shr,
            AluOp::Arsh => BinOp::Sar,
        };
        if op.is_shift() && wide {
            b = self.trunc(b);
        }
        let value = self.bin(op, a, b);
        let value = if wide { value } else { self.zext(value) };
        self.set_reg(dst, value);
    }

    pub(super) fn mov_sx(&mut self, wide: bool, bits: u8, dst: Reg, src: Reg) {
        let low = self.reg(src);
        let low = self.trunc(low);
        let low = match bits {
            8 => self.push(Ty::B32, Op::Un(UnOp::Sext8, low)),
            16 => self.push(Ty::B32, Op::Un(UnOp::Sext16, low)),
            _ => low,
        };
        let extend = if wide { UnOp::Sext } else { UnOp::Zext };
        let value = self.push(Ty::B64, Op::Un(extend, low));
        self.set_reg(dst, value);
    }

    pub(super) fn neg(&mut self, wide: bool, dst: Reg) {
        let a = self.reg(dst);
        let value = if wide {
            let zero = self.constant(0);
            self.bin(BinOp::Sub, zero, a)
        } else {
            let (a, zero) = (self.trunc(a), self.constant32(0));
            let value = self.bin(BinOp::Sub, zero, a);
            self.zext(value)
        };
        self.set_reg(dst, value);
    }

    pub(super) fn byte_order(&mut self, kind: EndKind, bits: u8, dst: Reg) {
        let a = self.reg(dst);
        let swaps = match kind {
            // GPUs are little-endian.
            EndKind::ToLe => false,
            EndKind::ToBe | EndKind::Swap => true,
        };
        let value = match (bits, swaps) {
            (64, false) => a,
            (64, true) => self.push(Ty::B64, Op::Un(UnOp::Swap64, a)),
            (32, _) => {
                let low = self.trunc(a);
                let low = if swaps {
                    self.push(Ty::B32, Op::Un(UnOp::Swap32, low))
                } else {
                    low
                };
                self.zext(low)
            }
            (_, true) => {
                let low = self.trunc(a);
                let low = self.push(Ty::B32, Op::Un(UnOp::Swap16, low));
                self.zext(low)
            }
            (_, false) => self.bin_const(BinOp::And, a, 0xffff),
        };
        self.set_reg(dst, value);
    }
}

//! Instructions one after the other, with labels that are placed later, and the place in the script
//! that each comes from.

use warpbpf_ebpf::{AluOp, AtomicOp, Callee, Code, Imm64, Insn, JumpOp, Pc, Reg, Source, Width};

use crate::span::Span;

/// A place in the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(u32);

/// Register `n`, 0 to 10.
pub const fn r(n: u8) -> Reg {
    match Reg::new(n) {
        Some(reg) => reg,
        None => Reg::FP,
    }
}

/// Code while it is made.
#[derive(Debug, Default)]
pub struct Assembler {
    /// Their targets are numbers of labels.
    insns: Vec<Insn>,
    spans: Vec<Span>,
    labels: Vec<Option<u32>>,
    /// Where the next instructions come from.
    pub span: Span,
}

impl Assembler {
    fn push(&mut self, insn: Insn) {
        self.insns.push(insn);
        self.spans.push(self.span);
    }

    /// Instructions so far.
    pub fn len(&self) -> usize {
        self.insns.len()
    }

    /// A label that is not placed yet.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() as u32 - 1)
    }

    /// Places a label in front of the next instruction.
    pub fn place(&mut self, label: Label) {
        self.labels[label.0 as usize] = Some(self.insns.len() as u32);
    }

    /// `dst op= src`, 64 bits.
    pub fn alu(&mut self, op: AluOp, dst: Reg, src: Source) {
        self.push(Insn::Alu {
            wide: true,
            op,
            dst,
            src,
        });
    }

    /// `dst op= src`, 32 bits.
    pub fn alu32(&mut self, op: AluOp, dst: Reg, src: Source) {
        self.push(Insn::Alu {
            wide: false,
            op,
            dst,
            src,
        });
    }

    /// `dst = src`
    pub fn copy(&mut self, dst: Reg, src: Reg) {
        self.alu(AluOp::Mov, dst, Source::Reg(src));
    }

    /// `dst = number`
    pub fn number(&mut self, dst: Reg, number: i64) {
        match i32::try_from(number) {
            Ok(small) => self.alu(AluOp::Mov, dst, Source::Imm(small)),
            Err(_) => self.push(Insn::LoadImm64 {
                dst,
                value: Imm64::Value(number as u64),
            }),
        }
    }

    /// `dst = -dst`
    pub fn neg(&mut self, dst: Reg) {
        self.push(Insn::Neg { wide: true, dst });
    }

    /// `dst` = the map with this index.
    pub fn map(&mut self, dst: Reg, map: usize) {
        self.push(Insn::LoadImm64 {
            dst,
            value: Imm64::Map(map as u32),
        });
    }

    /// `dst = *(base + off)`
    pub fn load(&mut self, width: Width, signed: bool, dst: Reg, base: Reg, off: i16) {
        self.push(Insn::Load {
            width,
            signed,
            dst,
            base,
            off,
        });
    }

    /// `*(base + off) = src`
    pub fn store(&mut self, width: Width, base: Reg, off: i16, src: Source) {
        self.push(Insn::Store {
            width,
            base,
            off,
            src,
        });
    }

    /// An atomic on 64 bits.
    pub fn atomic(&mut self, op: AtomicOp, base: Reg, off: i16, src: Reg) {
        self.push(Insn::Atomic {
            width: Width::W64,
            op,
            base,
            off,
            src,
        });
    }

    /// `call number`
    pub fn call(&mut self, number: u32) {
        self.push(Insn::Call {
            callee: Callee::Helper(number),
        });
    }

    /// `if dst op src goto label`
    pub fn jump(&mut self, op: JumpOp, dst: Reg, src: Source, label: Label) {
        self.push(Insn::Jump {
            wide: true,
            op,
            dst,
            src,
            target: Pc(label.0),
        });
    }

    /// `goto label`
    pub fn goto(&mut self, label: Label) {
        self.push(Insn::Goto {
            target: Pc(label.0),
            long: false,
        });
    }

    /// `may_goto label`
    pub fn may_goto(&mut self, label: Label) {
        self.push(Insn::MayGoto {
            target: Pc(label.0),
        });
    }

    /// `exit`
    pub fn exit(&mut self) {
        self.push(Insn::Exit);
    }

    /// The code, and where each of its instructions comes from. All labels are placed.
    pub fn finish(self) -> (Code, Vec<Span>) {
        let end = self.insns.len() as u32;
        let place = |pc: Pc| Pc(self.labels[pc.index()].unwrap_or(end));
        let insns = self.insns.into_iter();
        let insns = insns.map(|insn| insn.retargeted(place)).collect();
        (Code::new(insns), self.spans)
    }
}

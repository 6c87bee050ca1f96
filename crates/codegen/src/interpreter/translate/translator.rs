//! Where a translation stands, and the instructions that all of its parts write.

use warpbpf_abi::attach::Site;
use warpbpf_ebpf::{AluOp, Code, JumpOp, Pc, Width};
use warpbpf_verify::{Facts, Instance, Subject, Verified};

use super::super::area::{KEPT_AT, KEPT_BYTES};
use super::super::error::{MOST_WORDS, NotInterpreted};
use super::super::form::{Form, Imm, Word};
use super::super::function::Interpreter;
use super::super::ops::{DeviceOp, Reg16};
use crate::fragment::MapBinding;

/// A place that jumps go to.
#[derive(Clone, Copy)]
pub(super) struct Label(pub(super) usize);

/// What becomes of programs.
#[derive(Default)]
pub(super) struct Output {
    pub(super) words: Vec<Word>,
    pub(super) labels: Vec<Option<usize>>,
    /// Words whose offset is a label.
    pub(super) jumps: Vec<(usize, Label)>,
}

pub(super) struct Translator<'a, 'o> {
    pub(super) code: &'a Code,
    pub(super) facts: &'a Facts,
    pub(super) maps: &'a [MapBinding],
    pub(super) interpreter: &'a Interpreter,
    /// Of a program in a slot: where `r1` points to the context.
    pub(super) site: Option<Site>,
    pub(super) output: &'o mut Output,
    pub(super) pc: Pc,
}

/// The function that is being written.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) instance: &'a Instance,
    /// What its `r10` holds, from the beginning of the own memory on.
    pub(super) top: u32,
}

impl Frame<'_> {
    pub(super) fn kept(self, at: u32) -> i32 {
        (KEPT_AT + self.instance.frame * KEPT_BYTES + at) as i32
    }
}

pub(super) const R0: Reg16 = Reg16(0);

pub(super) fn reg(number: u8) -> Reg16 {
    Reg16(number)
}

impl<'a, 'o> Translator<'a, 'o> {
    pub(super) fn new<P: Subject>(
        program: &'a Verified<P>,
        maps: &'a [MapBinding],
        interpreter: &'a Interpreter,
        site: Option<Site>,
        output: &'o mut Output,
    ) -> Translator<'a, 'o> {
        Translator {
            code: program.program().code(),
            facts: program.facts(),
            maps,
            interpreter,
            site,
            output,
            pc: Pc(0),
        }
    }

    pub(super) fn missing<T>(&self, expected: &'static str) -> Result<T, NotInterpreted> {
        Err(NotInterpreted::Missing {
            pc: self.pc,
            expected,
        })
    }

    pub(super) fn refuse<T>(&self, what: &'static str) -> Result<T, NotInterpreted> {
        Err(NotInterpreted::Instruction { pc: self.pc, what })
    }

    pub(super) fn emit(
        &mut self,
        op: DeviceOp,
        [dst, src, result]: [Reg16; 3],
        off: i32,
        imm: Imm,
    ) -> Result<(), NotInterpreted> {
        let Some(op) = self.interpreter.number(op) else {
            return self.missing("an operation of the device");
        };
        if self.output.words.len() >= MOST_WORDS {
            return Err(NotInterpreted::Long);
        }
        self.output.words.push(Word {
            op,
            dst,
            src,
            result,
            off,
            imm,
        });
        Ok(())
    }

    pub(super) fn alu(
        &mut self,
        wide: bool,
        op: AluOp,
        dst: Reg16,
        src: Reg16,
    ) -> Result<(), NotInterpreted> {
        self.emit(DeviceOp::Alu(wide, op), [dst, src, dst], 0, Imm::Value(0))
    }

    pub(super) fn alu_imm(
        &mut self,
        op: AluOp,
        dst: Reg16,
        imm: u64,
    ) -> Result<(), NotInterpreted> {
        let op = DeviceOp::Alu(true, op);
        self.emit(op, [dst, Reg16::IMM, dst], 0, Imm::Value(imm))
    }

    pub(super) fn set(&mut self, dst: Reg16, imm: Imm) -> Result<(), NotInterpreted> {
        let op = DeviceOp::Alu(true, AluOp::Mov);
        self.emit(op, [dst, Reg16::IMM, dst], 0, imm)
    }

    pub(super) fn copy(&mut self, dst: Reg16, src: Reg16) -> Result<(), NotInterpreted> {
        self.alu(true, AluOp::Mov, dst, src)
    }

    pub(super) fn load(
        &mut self,
        width: Width,
        signed: bool,
        dst: Reg16,
        base: Reg16,
        off: i32,
    ) -> Result<(), NotInterpreted> {
        let op = DeviceOp::Load(width, signed);
        self.emit(op, [dst, base, dst], off, Imm::Value(0))
    }

    pub(super) fn store(
        &mut self,
        width: Width,
        base: Reg16,
        off: i32,
        src: Reg16,
        imm: u64,
    ) -> Result<(), NotInterpreted> {
        let op = DeviceOp::Store(width);
        self.emit(op, [base, src, R0], off, Imm::Value(imm))
    }

    pub(super) fn label(&mut self) -> Label {
        self.output.labels.push(None);
        Label(self.output.labels.len() - 1)
    }

    pub(super) fn place(&mut self, label: Label) {
        self.output.labels[label.0] = Some(self.output.words.len());
    }

    pub(super) fn goto(&mut self, to: Label) -> Result<(), NotInterpreted> {
        self.output.jumps.push((self.output.words.len(), to));
        self.emit(DeviceOp::Goto, [R0; 3], 0, Imm::Value(0))
    }

    pub(super) fn jump(
        &mut self,
        wide: bool,
        op: JumpOp,
        a: Reg16,
        b: Reg16,
        imm: u64,
        to: Label,
    ) -> Result<(), NotInterpreted> {
        self.output.jumps.push((self.output.words.len(), to));
        self.emit(DeviceOp::Jump(wide, op), [a, b, R0], 0, Imm::Value(imm))
    }

    pub(super) fn jump_imm(
        &mut self,
        op: JumpOp,
        a: Reg16,
        imm: u64,
        to: Label,
    ) -> Result<(), NotInterpreted> {
        self.jump(true, op, a, Reg16::IMM, imm, to)
    }

    pub(super) fn finish(&mut self) -> Result<Form, NotInterpreted> {
        for (word, label) in std::mem::take(&mut self.output.jumps) {
            let Some(to) = self.output.labels[label.0] else {
                return self.missing("the target of a jump");
            };
            self.output.words[word].off = to as i32;
        }
        Ok(Form {
            words: std::mem::take(&mut self.output.words),
        })
    }

    pub(super) fn binding(&self, map: u32) -> Result<MapBinding, NotInterpreted> {
        let found = self.maps.get(map as usize).copied();
        found.ok_or(NotInterpreted::Missing {
            pc: self.pc,
            expected: "a map",
        })
    }
}

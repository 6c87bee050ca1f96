//! From a verified program to what the device runs.
//!
//! Every function is written out at each place that calls it, because its proof is one for each
//! place: so a call is a jump, and what it keeps lies at a known place of the run's own memory.

mod helpers;
mod memory;
mod translator;

use warpbpf_abi::attach::Site;
use warpbpf_abi::kfuncs::KfuncId;
use warpbpf_abi::layout::MapLayout;
use warpbpf_ebpf::{AluOp, Callee, EndKind, Imm64, Insn, JumpOp, Pc, Reg, Source, Width};
use warpbpf_verify::{InsnFact, Instance, Subject, Verified};

use super::area::{CONTEXT_AT, DEPTHS, ROUNDS, STACK};
use super::error::NotInterpreted;
use super::form::{Form, Imm};
use super::function::Interpreter;
use super::ops::{DeviceOp, Reg16};
use crate::fragment::MapBinding;
use translator::{Frame, Label, Output, R0, Translator, reg};

/// The program for `interpreter`, whose layouts must be those of `maps`.
///
/// # Errors
/// [`NotInterpreted`] names what the device cannot do.
pub fn translate<P: Subject>(
    program: &Verified<P>,
    maps: &[MapBinding],
    interpreter: &Interpreter,
) -> Result<Form, NotInterpreted> {
    let mut output = Output::default();
    let mut t = Translator::new(program, maps, interpreter, None, &mut output);
    t.program(None)?;
    t.finish()
}

/// Programs of one site, in the order in which they run; errors come with the place of theirs among
/// them.
///
/// # Errors
/// As [`translate`].
pub fn translate_for_slot<P: Subject>(
    programs: &[&Verified<P>],
    maps: &[MapBinding],
    interpreter: &Interpreter,
    site: Site,
) -> Result<Form, (usize, NotInterpreted)> {
    let mut output = Output::default();
    for (number, program) in programs.iter().enumerate() {
        let mut t = Translator::new(*program, maps, interpreter, Some(site), &mut output);
        let is_last = number + 1 == programs.len();
        let done = t.context(number == 0).and_then(|()| {
            let end = (!is_last).then(|| t.label());
            t.program(end)?;
            end.into_iter().for_each(|end| t.place(end));
            match is_last {
                true => t.finish().map(Some),
                false => Ok(None),
            }
        });
        if let Some(form) = done.map_err(|error| (number, error))? {
            return Ok(form);
        }
    }
    Ok(Form { words: Vec::new() })
}

impl<'a, 'o> Translator<'a, 'o> {
    /// The whole program; where it ends it goes to `end`, or the run does.
    fn program(&mut self, end: Option<Label>) -> Result<(), NotInterpreted> {
        let facts = self.facts;
        if facts.stack_bytes > STACK {
            return Err(NotInterpreted::Stack {
                bytes: facts.stack_bytes,
            });
        }
        let Some(entry) = facts.instances.first() else {
            return self.missing("an instance for the entry function");
        };
        self.instance(entry, STACK, end)
    }

    /// Keeps `r1` as the run begins, or sets it to that again.
    fn context(&mut self, first: bool) -> Result<(), NotInterpreted> {
        match first {
            true => self.store(Width::W64, Reg16::AREA, CONTEXT_AT as i32, reg(1), 0),
            false => self.load(Width::W64, false, reg(1), Reg16::AREA, CONTEXT_AT as i32),
        }
    }

    // --- building
    // ---------------------------------------------------------------------------------------------

    // --- functions
    // ---------------------------------------------------------------------------------------------

    /// Writes a function; where it ends it goes to `end`, or the program does.
    fn instance(
        &mut self,
        instance: &'a Instance,
        top: u32,
        end: Option<Label>,
    ) -> Result<(), NotInterpreted> {
        if instance.frame >= DEPTHS {
            return Err(NotInterpreted::Depth {
                depth: instance.frame + 1,
            });
        }
        let frame = Frame { instance, top };
        self.frame_pointer(frame)?;
        let rounds = u64::from(self.facts.may_goto_rounds);
        self.store(
            Width::W64,
            Reg16::AREA,
            frame.kept(ROUNDS),
            Reg16::IMM,
            rounds,
        )?;
        let labels: Vec<Label> = instance.insns.iter().map(|_| self.label()).collect();
        let at = |pc: Pc| labels[pc.index() - instance.start.index()];
        let targets = memory::targets(self.code, instance);
        let mut taken = 0;
        for (index, fact) in instance.insns.iter().enumerate() {
            let pc = Pc(instance.start.0 + index as u32);
            self.pc = pc;
            self.place(labels[index]);
            if index < taken {
                continue;
            }
            if self.adds_to_map(instance, pc, &targets)? {
                taken = index + 3;
                continue;
            }
            if *fact != InsnFact::Dead {
                self.insn(frame, fact, *self.code.at(pc), &at, end)?;
            }
        }
        Ok(())
    }

    fn frame_pointer(&mut self, frame: Frame<'_>) -> Result<(), NotInterpreted> {
        let fp = Reg16::from(Reg::FP);
        self.copy(fp, Reg16::AREA)?;
        self.alu_imm(AluOp::Add, fp, frame.top.into())
    }

    /// The function that the current instruction calls; `r0` is what it returned.
    fn call(&mut self, frame: Frame<'a>) -> Result<(), NotInterpreted> {
        let callee = frame.instance.calls.get(&self.pc);
        let callee = callee.and_then(|&index| self.facts.instances.get(index));
        let Some(callee) = callee.filter(|callee| callee.frame > frame.instance.frame) else {
            return self.missing("the proof of the called function");
        };
        let pc = self.pc;
        for (i, at) in (6..=9).zip((0..).step_by(8)) {
            self.store(Width::W64, Reg16::AREA, frame.kept(at), reg(i), 0)?;
        }
        let Some(top) = frame.top.checked_sub(frame.instance.stack_bytes) else {
            return self.missing("the bytes of the stack");
        };
        let after = self.label();
        self.instance(callee, top, Some(after))?;
        self.place(after);
        self.pc = pc;
        for (i, at) in (6..=9).zip((0..).step_by(8)) {
            self.load(Width::W64, false, reg(i), Reg16::AREA, frame.kept(at))?;
        }
        self.frame_pointer(frame)
    }

    // --- instructions
    // ---------------------------------------------------------------------------------------------

    fn insn(
        &mut self,
        frame: Frame<'a>,
        fact: &InsnFact,
        insn: Insn,
        at: &dyn Fn(Pc) -> Label,
        end: Option<Label>,
    ) -> Result<(), NotInterpreted> {
        // An immediate has a register.
        let source = |src: Source| match src {
            Source::Reg(src) => (Reg16::from(src), 0),
            Source::Imm(imm) => (Reg16::IMM, i64::from(imm) as u64),
        };
        match insn {
            Insn::Alu { wide, op, dst, src } => {
                let (src, imm) = source(src);
                let dst = Reg16::from(dst);
                self.emit(DeviceOp::Alu(wide, op), [dst, src, dst], 0, Imm::Value(imm))
            }
            Insn::MovSx {
                wide,
                bits,
                dst,
                src,
            } => {
                let registers = [dst.into(), src.into(), dst.into()];
                self.emit(DeviceOp::MovSx(wide, bits), registers, 0, Imm::Value(0))
            }
            Insn::Neg { wide, dst } => {
                self.emit(DeviceOp::Neg(wide), [dst.into(); 3], 0, Imm::Value(0))
            }
            Insn::End { kind, bits, dst } => {
                let swap = matches!(kind, EndKind::ToBe | EndKind::Swap);
                self.emit(DeviceOp::End(swap, bits), [dst.into(); 3], 0, Imm::Value(0))
            }
            Insn::LoadImm64 { dst, value } => self.constant(dst, value),
            Insn::Load {
                width,
                signed,
                dst,
                base,
                off,
            } => {
                let place = self.access(fact, width)?;
                let (base, off) = (base.into(), i32::from(off));
                self.read(place, width, signed, dst.into(), base, off)
            }
            Insn::LoadAcquire {
                width,
                dst,
                base,
                off,
            } => {
                let place = self.access(fact, width)?;
                let (base, off) = (base.into(), i32::from(off));
                self.read(place, width, false, dst.into(), base, off)?;
                self.emit(DeviceOp::Fence, [R0; 3], 0, Imm::Value(0))
            }
            Insn::Store {
                width,
                base,
                off,
                src,
            } => {
                let place = self.access(fact, width)?;
                let (src, imm) = source(src);
                self.write(place, width, base.into(), i32::from(off), src, imm)
            }
            Insn::StoreRelease {
                width,
                base,
                off,
                src,
            } => {
                let place = self.access(fact, width)?;
                self.emit(DeviceOp::Fence, [R0; 3], 0, Imm::Value(0))?;
                self.write(place, width, base.into(), i32::from(off), src.into(), 0)
            }
            Insn::Atomic {
                width,
                op,
                base,
                off,
                src,
            } => {
                let place = self.access(fact, width)?;
                self.atomic(place, width, op, base.into(), i32::from(off), src.into())
            }
            Insn::Jump {
                wide,
                op,
                dst,
                src,
                target,
            } => match fact {
                InsnFact::Branch { taken: false, .. } => Ok(()),
                InsnFact::Branch { falls: false, .. } => self.goto(at(target)),
                _ => {
                    let (src, imm) = source(src);
                    self.jump(wide, op, dst.into(), src, imm, at(target))
                }
            },
            Insn::Goto { target, .. } => self.goto(at(target)),
            Insn::MayGoto { target } => {
                let left = frame.kept(ROUNDS);
                self.load(Width::W64, false, Reg16::A, Reg16::AREA, left)?;
                self.jump_imm(JumpOp::Eq, Reg16::A, 0, at(target))?;
                self.alu_imm(AluOp::Sub, Reg16::A, 1)?;
                self.store(Width::W64, Reg16::AREA, left, Reg16::A, 0)
            }
            Insn::Call { callee } => match (callee, fact) {
                (Callee::Local(_), _) => self.call(frame),
                (Callee::Helper(_), InsnFact::Call(call)) => self.helper(frame, call),
                (Callee::Helper(_), _) => self.missing("what is known of the call"),
                (Callee::Kfunc(number), _) => match KfuncId::from_number(number) {
                    Some(kfunc) => self.iterator(kfunc),
                    None => self.refuse("calls a kernel function"),
                },
            },
            Insn::CallReg { .. } => self.refuse("calls through a register"),
            Insn::Exit => match end {
                Some(end) => self.goto(end),
                None => self.emit(DeviceOp::Exit, [R0; 3], 0, Imm::Value(0)),
            },
            Insn::LegacyPacket { .. } => self.refuse("reads a packet"),
        }
    }

    fn constant(&mut self, dst: Reg, value: Imm64) -> Result<(), NotInterpreted> {
        let imm = match value {
            Imm64::Value(value) => Imm::Value(value),
            Imm64::Map(map) => Imm::Map(map, 0),
            Imm64::MapValue { map, offset } => match self.binding(map)?.layout {
                MapLayout::Array(layout) if layout.shards <= 1 => Imm::Map(map, offset.into()),
                _ => return self.refuse("reads a variable that each multiprocessor has"),
            },
            // What is called back is known from the proof.
            Imm64::Func(_) => Imm::Value(1),
            Imm64::BtfId(_) => return self.refuse("names a variable of the kernel"),
        };
        self.set(dst.into(), imm)
    }
}

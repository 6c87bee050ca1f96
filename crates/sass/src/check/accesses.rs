//! The code of a kernel with probes at its accesses, beside what it was. A stub is run here, with
//! names for what registers hold: where the probe is called it must get what the access says, and
//! where the kernel goes on everything must hold what it held.

use std::collections::BTreeMap;
use std::ops::Range;

use super::code::{Code, always};
use crate::access::Access;
use crate::error::CheckError;
use crate::kinds::{late, regions, without_hints};
use crate::scan::is_waited_for;
use crate::table::{Family, Late, Op, base, family};
use crate::word::{ALL_BARRIERS, BYTES, Control, Insn, NO_BARRIER, Predicate, Word};

const STEP: u64 = BYTES as u64;
/// Registers that a probe may change, all below; and the stack pointer, which it may not. A stub
/// names no others where it writes, as a kernel may not have them.
const REGISTERS: usize = 22;
const STACK: u8 = 1;
/// Cycles after which each result is there that no barrier tells of, products of matrices apart.
const LATENCY: u64 = 13;

/// What a register holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    /// What it or another one held in the kernel.
    Kernel(u8),
    /// The kernel's predicates.
    Predicates,
    /// The lanes that came.
    Lanes,
    Number(u32),
    /// The low and the high half of the address in a pair of the kernel's registers plus this.
    Low(u8, u32),
    High(u8, u32),
    /// Nothing that is known.
    Lost,
}

/// A stub as it runs.
struct Stub<'c, 'w> {
    code: &'c Code<'w>,
    access: Access,
    at: u64,
    /// Cycles from its beginning.
    now: u64,
    registers: [Value; REGISTERS],
    /// When each can be read.
    ready: [u64; REGISTERS],
    /// When predicates can be.
    predicates_ready: u64,
    predicates: bool,
    /// What the carry is of.
    carry: Option<(u8, u32)>,
    /// Offset of the stack pointer from what it was.
    depth: i64,
    /// Bytes from what the stack pointer was.
    saved: BTreeMap<i64, Value>,
    /// Registers in use, by barrier, and whether they are written.
    busy: [Vec<(u8, bool)>; 6],
    /// The probe may have left anything in flight.
    foreign: bool,
    region: Option<(u8, u64)>,
    is_closed: bool,
    /// All lanes that came were waited for.
    is_joined: bool,
    /// Lanes without an access are at the end of the region.
    skipped: Option<u64>,
    called: Option<u64>,
}

impl Code<'_> {
    /// Gives where threads end.
    pub(super) fn check_accesses(&self) -> Result<Vec<u64>, CheckError> {
        let (mut probes, mut exits) = (Vec::new(), Vec::new());
        let mut stubs: Vec<Range<u64>> = Vec::new();
        // Convergence barriers of the kernel, the stubs and the probe; what is not known may name
        // any.
        let (mut kernel, mut stub, mut probe) = (0u16, 0u16, 0u16);
        let named = |word: Word| match family(word.opcode()) {
            Family::Control => regions(word, self.arch).unwrap_or(u16::MAX),
            Family::Barrier | Family::Plain => 0,
        };
        for (index, (was, is)) in self.old.iter().zip(self.new).enumerate() {
            let at = index as u64 * STEP;
            if was.base() == base::EXIT {
                exits.push(at);
            }
            kernel |= named(*was);
            let never = Predicate::of(was.bits(12, 4)) == Predicate::NEVER;
            if !Access::is_one(*was) || never {
                // Nothing is kept for an instruction that another one has taken the place of.
                let goes_on = self.old.get(index + 1).zip(self.new.get(index + 1));
                match goes_on.is_some_and(|(was, is)| Access::is_one(*was) && was != is) {
                    true => self.unchanged(at, without_hints(*was), *is)?,
                    false => self.unchanged(at, *was, *is)?,
                }
                continue;
            }
            let access = Access::read(at, *was).ok_or_else(|| self.differs(at, *was, *is))?;
            let to = self.leads(at, *was, *is, Predicate::ALWAYS, Predicate::ALWAYS)?;
            if is.control().wait != ALL_BARRIERS || is.control().stall < 5 {
                return Err(self.differs(at, *was, *is));
            }
            let ran = Stub::run(self, access, to, *was)?;
            stubs.push(to..ran.at);
            stub |= ran.region.map_or(0, |(barrier, _)| 1 << barrier);
            probes.extend(ran.called);
        }
        self.added(&mut stubs, &probes)?;
        // There is one probe, and it is called where it begins.
        if let Some(at) = probes
            .iter()
            .find(|at| **at != self.old.len() as u64 * STEP)
        {
            return Err(CheckError::Added {
                at: *at,
                expected: "where the probe begins",
            });
        }
        let first = stubs.first().map_or(0, |stub| stub.start);
        for at in (self.old.len() as u64 * STEP..first).step_by(BYTES) {
            let word = self.word(at).unwrap_or(Word(0));
            if word.base() == base::YIELD {
                return Err(CheckError::Added {
                    at,
                    expected: "an instruction behind which lanes are together",
                });
            }
            probe |= named(word);
            if late(word) != Late::Nothing && !is_waited_for(word) {
                return Err(CheckError::Added {
                    at,
                    expected: "an instruction that can be waited for",
                });
            }
        }
        // Neither the kernel's regions nor the stubs' are those of the probe.
        if kernel & (stub | probe) | stub & probe != 0 {
            return Err(CheckError::Added {
                at: first,
                expected: "a region in a convergence barrier of its own",
            });
        }
        Ok(exits)
    }

    /// An instruction is what it was, but for a barrier that says when it is done with its
    /// registers, and it has one.
    fn unchanged(&self, at: u64, was: Word, is: Word) -> Result<(), CheckError> {
        let needs = at == 0 || late(was) != Late::Nothing;
        if !needs || is_waited_for(was) {
            return match was == is {
                true => Ok(()),
                false => Err(self.differs(at, was, is)),
            };
        }
        // The first one loads the stack pointer.
        let barrier = |word: Word, control: Control| match at == 0 || late(word) == Late::Writes {
            true => Control {
                write: control.write,
                ..word.control()
            },
            false => Control {
                read: control.read,
                ..word.control()
            },
        };
        let control = is.control();
        let one = (control.read < 6) != (control.write < 6);
        match one && is == was.with_control(barrier(was, control)) {
            true => Ok(()),
            false => Err(self.differs(at, was, is)),
        }
    }
}

impl<'c, 'w> Stub<'c, 'w> {
    /// Runs it up to the access and back; afterwards `at` is its end.
    fn run(
        code: &'c Code<'w>,
        access: Access,
        start: u64,
        original: Word,
    ) -> Result<Stub<'c, 'w>, CheckError> {
        let mut registers = [Value::Lost; REGISTERS];
        for (value, register) in registers.iter_mut().zip(0..) {
            *value = Value::Kernel(register);
        }
        let mut stub = Stub {
            code,
            access,
            at: start,
            now: 0,
            registers,
            ready: [LATENCY; REGISTERS],
            predicates_ready: LATENCY,
            predicates: true,
            carry: None,
            depth: 0,
            saved: BTreeMap::new(),
            busy: Default::default(),
            foreign: false,
            region: None,
            is_closed: false,
            is_joined: false,
            skipped: None,
            called: None,
        };
        loop {
            let word = code.word(stub.at);
            let word = word.ok_or_else(|| stub.wrong("followed by the access"))?;
            if Access::is_one(word) {
                code.unchanged(access.at, original, word)?;
                break;
            }
            stub.step(word)?;
        }
        stub.is_whole()?;
        stub.at += STEP;
        code.expect(stub.at, "a branch behind the access", |word, insn| {
            insn.is_some_and(|i| i.op == Op::Bra && always(&i) && i.control.reuse == 0)
                && word.leads_to(stub.at, code.arch) == Some(access.at + STEP)
        })?;
        stub.at += STEP;
        Ok(stub)
    }

    fn wrong(&self, expected: &'static str) -> CheckError {
        CheckError::Added {
            at: self.at,
            expected,
        }
    }

    /// Everything is what it was.
    fn is_whole(&self) -> Result<(), CheckError> {
        let settled = !self.foreign
            && self.busy.iter().all(Vec::is_empty)
            && self.predicates_ready <= self.now
            && self.ready.iter().all(|at| *at <= self.now);
        let mut all = self.registers.iter().zip(0..);
        let same = all.all(|(value, register)| *value == Value::Kernel(register));
        match settled && same && self.predicates && self.depth == 0 && self.is_joined {
            true => Ok(()),
            false => Err(self.wrong("reached with everything as it was")),
        }
    }

    fn step(&mut self, word: Word) -> Result<(), CheckError> {
        let insn = Insn::decode(word, self.code.arch);
        let insn = insn.ok_or_else(|| self.wrong("what a stub has"))?;
        let skips = insn.op == Op::Bra;
        if insn.control.reuse != 0 || !skips && !always(&insn) {
            return Err(self.wrong("an instruction without conditions"));
        }
        for barrier in (0..6).filter(|b| insn.control.wait & 1 << b != 0) {
            self.busy[barrier].clear();
        }
        self.foreign &= insn.control.wait != ALL_BARRIERS;
        match insn.op {
            Op::Nop => {}
            Op::Add if insn.target == 1 && insn.source == 1 => {
                let pointer = self.read(1)?;
                self.write(1, pointer)?;
                self.depth += i64::from(insn.number as i32);
            }
            Op::Stl => self.store(&insn)?,
            Op::Ldl => self.load(&insn)?,
            Op::P2r => {
                let value = match self.predicates && self.predicates_ready <= self.now {
                    true => Value::Predicates,
                    false => Value::Lost,
                };
                self.write(insn.target, value)?;
            }
            Op::VoteAny if self.region.is_none() => self.write(insn.target, Value::Lanes)?,
            Op::WarpSync if self.is_closed => {
                self.is_joined = self.read(insn.source)? == Value::Lanes;
            }
            Op::R2p => {
                self.predicates = self.read(insn.source)? == Value::Predicates;
                self.predicates_ready = self.now + LATENCY;
            }
            Op::MovReg => {
                let value = self.read(insn.source)?;
                self.write(insn.target, value)?;
            }
            Op::MovImm => self.write(insn.target, Value::Number(insn.number))?,
            Op::AddCarry => {
                let value = match self.read(insn.source)? {
                    Value::Kernel(base) => {
                        self.carry = Some((base, insn.number));
                        Value::Low(base, insn.number)
                    }
                    _ => Value::Lost,
                };
                self.write(insn.target, value)?;
                self.predicates = false;
                self.predicates_ready = self.now + LATENCY;
            }
            Op::AddWithCarry => {
                let high = self.read(insn.source)?;
                let value = match self.carry.filter(|_| self.predicates_ready <= self.now) {
                    Some((base, low))
                        if high == Value::Kernel(base + 1)
                            && insn.number as i32 == low as i32 >> 31 =>
                    {
                        Value::High(base, low)
                    }
                    _ => Value::Lost,
                };
                self.write(insn.target, value)?;
            }
            Op::Bssy if self.region.is_none() => {
                let end = word.leads_to(self.at, self.code.arch).unwrap_or(0);
                self.region = Some((insn.barrier, end));
            }
            Op::Bra if self.region.is_some() && self.skipped.is_none() => {
                let right = insn.guard == self.access.guard.not()
                    && insn.second == Predicate::ALWAYS
                    && self.predicates
                    && self.predicates_ready <= self.now;
                if !right || self.called.is_some() {
                    return Err(self.wrong("a branch of the lanes without an access"));
                }
                self.skipped = word.leads_to(self.at, self.code.arch);
            }
            Op::CallRel if self.called.is_none() => self.call(word, insn.control)?,
            Op::Bsync if self.called.is_some() => {
                let all = self.access.guard == Predicate::ALWAYS;
                let met = match self.skipped {
                    Some(at) => at == self.at,
                    None => all,
                };
                if !met || self.region != Some((insn.barrier, self.at + STEP)) {
                    return Err(self.wrong("the end of the region"));
                }
                self.is_closed = true;
            }
            _ => return Err(self.wrong("what a stub has")),
        }
        self.now += u64::from(insn.control.stall.max(1));
        self.at += STEP;
        Ok(())
    }

    /// What a register holds, if that can be read now.
    fn read(&self, register: u8) -> Result<Value, CheckError> {
        let index = usize::from(register);
        let written = (self.busy.iter().flatten()).any(|busy| *busy == (register, true));
        let Some(ready) = self.ready.get(index) else {
            // Probes do not have it, and the kernel has it if its access names it.
            return match (self.access.base..=self.access.base + 1).contains(&register) {
                true => Ok(Value::Kernel(register)),
                false => Err(self.wrong("a register that the kernel has")),
            };
        };
        if written || self.foreign || *ready > self.now {
            return Err(self.wrong("reading what is there"));
        }
        Ok(self.registers[index])
    }

    fn write(&mut self, register: u8, value: Value) -> Result<(), CheckError> {
        let index = usize::from(register);
        let busy = (self.busy.iter().flatten()).any(|(busy, _)| *busy == register);
        if index >= REGISTERS || busy || self.foreign {
            return Err(self.wrong("writing what is free"));
        }
        self.registers[index] = value;
        self.ready[index] = self.now + LATENCY;
        Ok(())
    }

    /// A place on the stack that the kernel does not have.
    fn slot(&self, insn: &Insn) -> Result<i64, CheckError> {
        self.read(STACK)?;
        let offset = i64::from(insn.number as i32);
        let slot = self.depth + offset;
        match offset >= 0 && slot <= -4 && slot % 4 == 0 {
            true => Ok(slot),
            false => Err(self.wrong("within the stub's stack")),
        }
    }

    fn store(&mut self, insn: &Insn) -> Result<(), CheckError> {
        let slot = self.slot(insn)?;
        let value = self.read(insn.source)?;
        self.saved.insert(slot, value);
        let Control { read, write, .. } = insn.control;
        if write != NO_BARRIER {
            return Err(self.wrong("a store"));
        }
        self.keep(read, [(insn.source, false), (STACK, false)], insn.control)
    }

    fn load(&mut self, insn: &Insn) -> Result<(), CheckError> {
        let slot = self.slot(insn)?;
        let value = self.saved.get(&slot).copied().unwrap_or(Value::Lost);
        self.write(insn.target, value)?;
        self.ready[usize::from(insn.target)] = 0;
        let Control { read, write, .. } = insn.control;
        if read != NO_BARRIER {
            return Err(self.wrong("a load"));
        }
        self.keep(write, [(insn.target, true), (STACK, false)], insn.control)
    }

    /// Registers are in use until a barrier is down, which can be asked for two cycles later.
    fn keep(
        &mut self,
        barrier: u8,
        registers: [(u8, bool); 2],
        control: Control,
    ) -> Result<(), CheckError> {
        let wrong = self.wrong("something that can be waited for");
        let busy = self.busy.get_mut(usize::from(barrier));
        let busy = busy.filter(|_| control.stall >= 2).ok_or(wrong)?;
        busy.extend(registers);
        Ok(())
    }

    fn call(&mut self, word: Word, control: Control) -> Result<(), CheckError> {
        let base = self.access.base;
        let (low, high) = match self.access.offset {
            0 => (Value::Kernel(base), Value::Kernel(base + 1)),
            offset => (
                Value::Low(base, offset as u32),
                Value::High(base, offset as u32),
            ),
        };
        let back = self.at + STEP;
        let number = |value: u64| Value::Number(value as u32);
        let expected = [
            (6, number(self.access.at)),
            (7, number(self.access.at >> 32)),
            (8, low),
            (9, high),
            (10, number(self.access.bytes.into())),
            (11, number(if self.access.is_store { 2 } else { 1 })),
            (12, number(0)),
            (13, number(0)),
            (20, number(back)),
            (21, number(back >> 32)),
        ];
        for (register, value) in expected {
            if self.read(register)? != value {
                return Err(self.wrong("a call with what the access says"));
            }
        }
        for register in [4, 5] {
            if !matches!(self.read(register)?, Value::Number(_)) {
                return Err(self.wrong("a call with an argument"));
            }
        }
        self.read(STACK)?;
        // What is saved is not the probe's, and there is as much stack.
        let kept = self.saved.keys().all(|slot| *slot >= self.depth);
        let kept = kept && -self.depth <= self.code.stack.into() && self.depth % 16 == 0;
        if self.region.is_none() || control.wait != ALL_BARRIERS || !kept {
            return Err(self.wrong("a call behind all barriers, in a region"));
        }
        self.called = word.leads_to(self.at, self.code.arch);
        for (register, value) in self.registers.iter_mut().enumerate() {
            if register != usize::from(STACK) {
                *value = Value::Lost;
            }
        }
        self.predicates = false;
        self.carry = None;
        self.foreign = true;
        Ok(())
    }
}

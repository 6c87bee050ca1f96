//! The code of a kernel with probes, beside what it was: every thread must still go where it went,
//! by way of a probe.

use std::ops::Range;

use crate::arch::Arch;
use crate::error::CheckError;
use crate::hidden::Launch;
use crate::kinds::{is_matrix_product, kept_barrier, late};
use crate::table::{Family, Late, Op, base, family};
use crate::word::{ALL_BARRIERS, BYTES, Control, Insn, NO_BARRIER, Predicate, Word};

/// The kernel's code before and after.
pub(super) struct Code<'a> {
    pub(super) arch: Arch,
    pub(super) old: &'a [Word],
    pub(super) new: &'a [Word],
    pub(super) exit: bool,
    /// Stack per thread that there is for probes, in bytes.
    pub(super) stack: u32,
    /// The launch arguments of probes, and where in bank 0 they are.
    pub(super) launch: Launch,
    pub(super) launch_at: u32,
}

impl Code<'_> {
    /// Gives where threads end now.
    pub(super) fn check(&self, entry: bool) -> Result<Vec<u64>, CheckError> {
        let mut stubs: Vec<Range<u64>> = Vec::new();
        let mut probes = Vec::new();
        let mut exits = Vec::new();
        for (index, (was, is)) in self.old.iter().zip(self.new).enumerate() {
            let at = (index * BYTES) as u64;
            if index == 0 && entry {
                let stub = self.leads(at, *was, *is, Predicate::ALWAYS, Predicate::ALWAYS)?;
                let mut end = self.stub(stub, at, &mut probes, false)?;
                self.together(stub..end, &probes)?;
                self.expect(end, "the instruction that was replaced", |w, _| w == *was)?;
                end += BYTES as u64;
                self.expect(end, "a branch to the second instruction", |w, insn| {
                    insn.is_some_and(|i| i.op == Op::Bra && always(&i))
                        && w.leads_to(end, self.arch) == Some(BYTES as u64)
                })?;
                stubs.push(stub..end + BYTES as u64);
            } else if was.base() == base::EXIT && self.exit {
                let old = Insn::decode(*was, self.arch).ok_or(CheckError::ExitLeft { at })?;
                let stub = self.leads(at, *was, *is, old.guard, old.second)?;
                if is.control() != was.control() {
                    return Err(self.differs(at, *was, *is));
                }
                let end = self.stub(stub, at, &mut probes, true)?;
                self.expect(end, "an exit", |_, insn| {
                    insn.is_some_and(|i| i.op == Op::Exit && always(&i))
                })?;
                exits.push(end);
                stubs.push(stub..end + BYTES as u64);
            } else if was != is || self.exit && is_late(*was) {
                self.guarded(at, *was, *is)?;
            } else if was.base() == base::EXIT {
                exits.push(at);
            }
        }
        self.added(&mut stubs, &probes)?;
        Ok(exits)
    }

    pub(super) fn differs(&self, at: u64, was: Word, is: Word) -> CheckError {
        CheckError::Instruction {
            at,
            was: was.0,
            is: is.0,
        }
    }

    pub(super) fn word(&self, at: u64) -> Option<Word> {
        self.new.get(at as usize / BYTES).copied()
    }

    pub(super) fn expect(
        &self,
        at: u64,
        expected: &'static str,
        holds: impl Fn(Word, Option<Insn>) -> bool,
    ) -> Result<Word, CheckError> {
        let word = self.word(at).unwrap_or(Word(0));
        if holds(word, Insn::decode(word, self.arch)) {
            Ok(word)
        } else {
            Err(CheckError::Added { at, expected })
        }
    }

    /// A replaced instruction is a branch under the same predicates to what was added; gives where.
    pub(super) fn leads(
        &self,
        at: u64,
        was: Word,
        is: Word,
        guard: Predicate,
        second: Predicate,
    ) -> Result<u64, CheckError> {
        let insn = Insn::decode(is, self.arch).filter(|i| {
            i.op == Op::Bra && i.guard == guard && i.second == second && i.control.reuse == 0
        });
        let to = insn.and_then(|_| is.leads_to(at, self.arch));
        let added = (self.old.len() * BYTES) as u64..(self.new.len() * BYTES) as u64;
        to.filter(|to| added.contains(to) && to.is_multiple_of(BYTES as u64))
            .ok_or_else(|| self.differs(at, was, is))
    }

    /// An instruction is what it was but for a barrier that says when it is done with its
    /// registers.
    fn guarded(&self, at: u64, was: Word, is: Word) -> Result<(), CheckError> {
        let control = was.control();
        let new = is.control();
        let expected = match late(was) {
            Late::Reads => Control {
                read: new.read,
                ..control
            },
            Late::Writes => Control {
                write: new.write,
                ..control
            },
            Late::Nothing | Late::Unknown => control,
        };
        let one = (new.read < 6) != (new.write < 6);
        if self.exit && is_late(was) && one && is == was.with_control(expected) {
            Ok(())
        } else {
            Err(self.differs(at, was, is))
        }
    }

    /// The part of a stub that runs a probe; gives where it goes on. What it calls is noted.
    fn stub(
        &self,
        stub: u64,
        site: u64,
        probes: &mut Vec<u64>,
        at_exit: bool,
    ) -> Result<u64, CheckError> {
        const STEP: u64 = BYTES as u64;
        let mut at = stub;
        let first = self.expect(at, "the beginning of a stub", |_, _| true)?;
        if at_exit && first.control().wait != ALL_BARRIERS {
            return Err(CheckError::Added {
                at,
                expected: "behind all barriers",
            });
        }
        let settles = at_exit && self.old.iter().any(|word| is_matrix_product(*word));
        for _ in 0..if settles { 3 } else { 0 } {
            self.expect(at, "a pause for matrix products", |word, insn| {
                insn.is_some_and(|i| i.op == Op::Nop) && word.control().stall == 15
            })?;
            at += STEP;
        }
        if self.stack > 0 {
            self.expect(at, "the load of the stack pointer", |_, insn| {
                insn.is_some_and(|i| {
                    matches!(i.op, Op::Ldc | Op::MovConst)
                        && always(&i)
                        && i.target == 1
                        && i.number == self.arch.stack_pointer()
                })
            })?;
            at += STEP;
        }
        let has_args = self.launch_args(&mut at, at_exit)?;
        let mut arguments: Vec<(u8, u32)> = Vec::new();
        for register in [4, 5, 6, 7, 20, 21] {
            let insn = self.word(at).and_then(|w| Insn::decode(w, self.arch));
            // What a probe begins with may give these registers a number, too.
            let half = match register {
                6 => Some(site as u32),
                7 => Some((site >> 32) as u32),
                _ => None,
            };
            let is_it = |i: &Insn| {
                i.op == Op::MovImm
                    && always(i)
                    && i.target == register
                    && half.is_none_or(|half| half == i.number)
            };
            if let Some(insn) = insn.filter(is_it) {
                arguments.push((register, insn.number));
                at += STEP;
            }
        }
        let region = self.word(at).and_then(|w| Insn::decode(w, self.arch));
        let region = region.filter(|i| i.op == Op::Bssy && always(i) && !at_exit);
        let opened = at;
        // What a probe begins with may be a region of its own.
        let meets = |end: u64| {
            let word = self.word(end).and_then(|w| Insn::decode(w, self.arch));
            word.is_some_and(|i| {
                i.op == Op::Bsync && region.is_some_and(|r| r.barrier == i.barrier)
            })
        };
        let leads = self
            .word(opened)
            .and_then(|w| w.leads_to(opened, self.arch));
        let region_end = leads
            .map(|to| to.wrapping_sub(STEP))
            .filter(|end| meets(*end));
        let is_last = region_end.is_some_and(|end| {
            let word = self
                .word(end + STEP)
                .and_then(|w| Insn::decode(w, self.arch));
            word.is_some_and(|i| i.op == Op::WarpSyncAll)
        });
        let region = region.filter(|_| is_last);
        if region.is_some() {
            at += STEP;
        }
        let is_call = |i: &Insn| i.op == Op::CallRel && always(i);
        let insn = self.word(at).and_then(|w| Insn::decode(w, self.arch));
        if insn.is_some_and(|i| is_call(&i)) {
            let call = self.expect(at, "a call behind all barriers", |_, insn| {
                insn.is_some_and(|i| is_call(&i) && i.control.wait == ALL_BARRIERS)
            })?;
            probes.extend(call.leads_to(at, self.arch));
            at += STEP;
            let back = (at as u32, (at >> 32) as u32);
            let given = arguments.get(4..).unwrap_or_default();
            if given != [(20, back.0), (21, back.1)] {
                return Err(CheckError::Added {
                    at: stub,
                    expected: "a call with this place and the way back",
                });
            }
        } else {
            let end = match region_end.filter(|_| region.is_some()) {
                Some(end) => end,
                None => self.end_of_body(at, at_exit)?,
            };
            self.body(at..end, &arguments, (at_exit, has_args))?;
            at = end;
        }
        if let Some(region) = region {
            self.expect(at, "the end of its region", |_, insn| {
                insn.is_some_and(|i| i.op == Op::Bsync && always(&i) && i.barrier == region.barrier)
            })?;
            at += STEP;
            if leads != Some(at) {
                return Err(CheckError::Added {
                    at: opened,
                    expected: "a region up to here",
                });
            }
            self.expect(at, "all lanes together behind it", |_, insn| {
                insn.is_some_and(|i| {
                    i.op == Op::WarpSyncAll && always(&i) && i.number == self.arch.all_lanes()
                })
            })?;
            at += STEP;
        }
        Ok(at)
    }

    /// The launch arguments that the probe of this place gets, each in its two registers; gives
    /// whether there are any.
    fn launch_args(&self, at: &mut u64, at_exit: bool) -> Result<bool, CheckError> {
        let words = match at_exit {
            true => self.launch.exit,
            false => self.launch.entry,
        };
        let bytes = self.launch.bytes;
        for word in (0..8u8).filter(|word| words & 1 << word != 0) {
            let offset = u32::from(word) * 8;
            let (first, from) = (8 + 2 * word, self.launch_at + offset);
            let halves: &[(Op, u8)] = match self.arch {
                Arch::Sm80 => &[(Op::MovConst, 0), (Op::MovConst, 1)],
                Arch::Sm90 => &[(Op::LdcPair, 0)],
            };
            for (op, half) in halves {
                self.expect(*at, "the load of what a launch tells", |word, insn| {
                    // What the probe begins with, or the call, waits for barrier 0.
                    let waited = self.arch == Arch::Sm80 || word.control().write == 0;
                    let fits = offset + 8 <= bytes && first < 16;
                    insn.is_some_and(|i| {
                        i.op == *op
                            && always(&i)
                            && i.target == first + half
                            && i.number == from + 4 * u32::from(*half)
                    }) && waited
                        && fits
                })?;
                *at += BYTES as u64;
            }
        }
        Ok(words != 0)
    }

    /// Lanes that a probe may part are together behind it.
    fn together(&self, stub: Range<u64>, probes: &[u64]) -> Result<(), CheckError> {
        let last = self.word(stub.end - BYTES as u64);
        let last = last.and_then(|word| Insn::decode(word, self.arch));
        if last.is_some_and(|i| i.op == Op::WarpSyncAll && always(&i)) {
            return Ok(());
        }
        let begin = stub.start;
        let mut seen = vec![false; self.new.len()];
        let mut open: Vec<u64> = (stub.step_by(BYTES))
            .chain(probes.iter().copied())
            .collect();
        while let Some(at) = open.pop() {
            let index = at as usize / BYTES;
            let Some(word) = self.word(at).filter(|_| !seen[index]) else {
                continue;
            };
            seen[index] = true;
            let insn = Insn::decode(word, self.arch);
            let always = insn.is_some_and(|i| always(&i));
            let jumps = matches!(word.base(), base::BRA | base::RET);
            if jumps && !always {
                return Err(CheckError::Added {
                    at,
                    expected: "all lanes together behind a branch",
                });
            }
            let leads = matches!(word.base(), base::BRA | base::CALL_REL);
            open.extend(leads.then(|| word.leads_to(at, self.arch)).flatten());
            // What follows in the stub is there already.
            let in_probe = probes.iter().any(|start| at >= *start) && at < begin;
            open.extend((in_probe && !jumps).then_some(at + BYTES as u64));
        }
        Ok(())
    }

    /// Where a probe ends that stands in a stub and is in no region: in front of the exit, or of
    /// the instruction that was replaced.
    fn end_of_body(&self, start: u64, at_exit: bool) -> Result<u64, CheckError> {
        let places = (start..(self.new.len() * BYTES) as u64).step_by(BYTES);
        let is_end = |at: &u64| {
            self.word(*at).is_some_and(|word| match at_exit {
                true => {
                    let insn = Insn::decode(word, self.arch);
                    insn.is_some_and(|i| i.op == Op::Exit && always(&i))
                }
                false => self.old.first() == Some(&word),
            })
        };
        places.into_iter().find(is_end).ok_or(CheckError::Added {
            at: start,
            expected: "a probe that ends",
        })
    }

    /// A probe that stands in a stub: it stays within itself. At an exit the kernel's own regions
    /// are open, so that it has none.
    fn body(
        &self,
        range: Range<u64>,
        arguments: &[(u8, u32)],
        (at_exit, has_args): (bool, bool),
    ) -> Result<(), CheckError> {
        let words = &self.new[range.start as usize / BYTES..range.end as usize / BYTES];
        let not = |expected| CheckError::Added {
            at: range.start,
            expected,
        };
        if arguments
            .iter()
            .map(|(register, _)| *register)
            .ne([4, 5, 6, 7])
        {
            return Err(not("all arguments"));
        }
        let waits = words.first().map_or(0, |word| word.control().wait);
        if (self.stack > 0 || has_args) && self.arch == Arch::Sm90 && waits & 1 == 0 {
            return Err(not("behind what the stub loads"));
        }
        // Where it goes on is behind its last instruction.
        let places = range.start..range.end + 1;
        for at in range.step_by(BYTES) {
            self.expect(at, "an instruction that a probe may have", |word, insn| {
                let never = insn.is_some_and(|i| match i.op {
                    Op::RetRel | Op::CallRel => true,
                    Op::Bssy | Op::Bsync | Op::Break | Op::WarpSync => at_exit,
                    _ => false,
                });
                let never = never || at_exit && kept_barrier(word).is_some();
                !never && self.may_stand(word, insn, at, &places)
            })?;
        }
        Ok(())
    }

    /// A probe may have this instruction, if what it leads to lies within `code`.
    fn may_stand(&self, word: Word, insn: Option<Insn>, at: u64, code: &Range<u64>) -> bool {
        let inside = || {
            let to = word.leads_to(at, self.arch);
            to.is_some_and(|to| code.contains(&to) && to.is_multiple_of(BYTES as u64))
        };
        match family(word.opcode()) {
            Family::Control => match (word.base(), insn.map(|i| (i.op, i.distance))) {
                (base::BRA, _) | (_, Some((Op::Bssy | Op::CallRel, _))) => inside(),
                // Back to the kernel's first instruction plus the return address.
                (_, Some((Op::RetRel, distance))) => at as i64 + 16 + distance == 0,
                (_, Some((Op::Bsync | Op::Break | Op::WarpSync, _))) => true,
                (base::NANOSLEEP | base::YIELD, _) => true,
                (base::BMOV | base::BMOV_64, _) => kept_barrier(word).is_some(),
                _ => false,
            },
            Family::Barrier => false,
            Family::Plain => true,
        }
    }

    /// What was added and is no stub: probes, which stay within themselves, and nothing behind the
    /// last stub.
    pub(super) fn added(&self, stubs: &mut [Range<u64>], probes: &[u64]) -> Result<(), CheckError> {
        stubs.sort_by_key(|stub| stub.start);
        let (from, to) = (
            (self.old.len() * BYTES) as u64,
            (self.new.len() * BYTES) as u64,
        );
        let first = stubs.first().map_or(to, |stub| stub.start);
        let last = stubs.last().map_or(to, |stub| stub.end);
        if stubs.windows(2).any(|pair| pair[0].end != pair[1].start) {
            return Err(CheckError::Added {
                at: first,
                expected: "one stub behind the other",
            });
        }
        let code = from..first;
        if let Some(at) = probes.iter().find(|at| !code.contains(at)) {
            return Err(CheckError::Added {
                at: *at,
                expected: "a probe",
            });
        }
        for at in (from..first).step_by(BYTES) {
            self.expect(at, "an instruction that a probe may have", |word, insn| {
                self.may_stand(word, insn, at, &code)
            })?;
        }
        for at in (last..to).step_by(BYTES) {
            self.expect(at, "nothing", |_, insn| {
                insn.is_some_and(|i| i.op == Op::Nop)
            })?;
        }
        Ok(())
    }
}

pub(super) fn always(insn: &Insn) -> bool {
    insn.guard == Predicate::ALWAYS && insn.second == Predicate::ALWAYS
}

/// It may still use registers when the next instructions are issued, and nothing tells when it is
/// done.
fn is_late(word: Word) -> bool {
    let control = word.control();
    late(word) != Late::Nothing && control.read == NO_BARRIER && control.write == NO_BARRIER
}

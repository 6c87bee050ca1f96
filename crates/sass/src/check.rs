//! Looks at an edited cubin as if someone else had made it, before it may be loaded: every byte that differs must be one that
//! an edit may change, and every thread must still go where it went.
//!
//! It knows the original and the result and nothing of how one became the other. Sections and kernels are read a second time by
//! `warpbpf-fatbin`, whose ELF reader is not ours.

use std::ops::Range;

use warpbpf_fatbin::{Cubin, Kernel};

use crate::Arch;
use crate::elf::{GRAIN, Image};
use crate::error::CheckError;
use crate::info;
use crate::probe::REGISTERS;
use crate::table::{Family, Late, Op, base, family, late};
use crate::word::{ALL_BARRIERS, BYTES, Control, Insn, NO_BARRIER, Predicate, Word};

/// Checks that `after` is `before` with probes in `kernel`, at its entry, its exits, or both.
///
/// # Errors
/// [`CheckError`]: what is wrong with it.
pub fn check(
    before: &[u8],
    after: &[u8],
    kernel: &str,
    entry: bool,
    exit: bool,
) -> Result<(), CheckError> {
    let unreadable = |e: &dyn std::fmt::Display| CheckError::Unreadable(e.to_string());
    let old = Image::parse(before).map_err(|e| unreadable(&e))?;
    let new = Image::parse(after).map_err(|e| unreadable(&e))?;
    let kernel_at = |image: &Image| {
        let mut symbols = image.symbols.iter();
        let found = symbols.find(|s| s.is_kernel && s.name == kernel);
        found.map(|s| (s.index as usize, s.section))
    };
    let missing = || CheckError::Changed(kernel.to_owned());
    let (symbol, text) = kernel_at(&old).ok_or_else(missing)?;
    if kernel_at(&new) != Some((symbol, text)) {
        return Err(missing());
    }
    let growth = layout(&old, &new, text)?;
    same_bytes(before, after, &old, &new, symbol, text, growth)?;
    symbols(&old, &new, symbol)?;
    let read = |bytes| Cubin::parse(bytes).map_err(|e| unreadable(&e));
    let (was, is) = (read(before)?, read(after)?);
    let frame = |cubin: &Cubin| cubin.kernel(kernel).map(|k| k.frame_size);
    let code = Code {
        arch: old.arch,
        old: words(old.data(text)),
        new: words(new.data(text)),
        exit,
        stack: frame(&was) != frame(&is),
    };
    let exits = code.check(entry)?;
    facts(&was, &is, kernel, growth, &exits)?;
    let header = new.sections[text].info >> 24;
    let registers = read(after)?.kernel(kernel).and_then(|k| k.registers);
    if header != 0 && registers.map(u64::from) != Some(header) {
        return Err(CheckError::Metadata {
            what: "registers in the section's header",
            found: header.to_string(),
            expected: format!("{registers:?}"),
        });
    }
    Ok(())
}

fn words(code: &[u8]) -> Vec<Word> {
    let chunks = code.chunks_exact(BYTES);
    chunks.filter_map(|chunk| Word::at(chunk, 0)).collect()
}

/// Sections and segments: the same ones, those behind the code further back. Gives how much longer the code is.
fn layout(old: &Image, new: &Image, text: usize) -> Result<u64, CheckError> {
    let wrong = |name: &str| CheckError::Layout(name.to_owned());
    if old.sections.len() != new.sections.len() || old.segments.len() != new.segments.len() {
        return Err(wrong("the tables"));
    }
    let end = old.sections[text].offset + old.sections[text].size;
    let growth = new.sections[text]
        .size
        .wrapping_sub(old.sections[text].size);
    if growth == 0 || growth > 1 << 32 || !growth.is_multiple_of(GRAIN) {
        return Err(wrong(&old.sections[text].name));
    }
    for (index, (was, is)) in old.sections.iter().zip(&new.sections).enumerate() {
        let mut expected = was.clone();
        if index == text {
            expected.size += growth;
            // The number of registers; compared with the attributes elsewhere.
            expected.info = was.info & 0x00ff_ffff | is.info & 0xff00_0000;
        } else if was.offset >= end {
            expected.offset += growth;
        }
        if *is != expected {
            return Err(wrong(&was.name));
        }
    }
    for (index, (was, is)) in old.segments.iter().zip(&new.segments).enumerate() {
        let mut expected = *was;
        if was.offset >= end {
            expected.offset += growth;
        } else if was.offset + was.file_bytes >= end {
            expected.file_bytes += growth;
            expected.memory_bytes += growth;
        }
        if *is != expected {
            return Err(wrong(&format!("segment {index}")));
        }
    }
    Ok(growth)
}

/// All bytes of the file but those that were just compared by their meaning, or will be.
fn same_bytes(
    before: &[u8],
    after: &[u8],
    old: &Image,
    new: &Image,
    symbol: usize,
    text: usize,
    growth: u64,
) -> Result<(), CheckError> {
    let end = (old.sections[text].offset + old.sections[text].size) as usize;
    if after.len() as u64 != before.len() as u64 + growth {
        return Err(CheckError::Layout("the file".to_owned()));
    }
    // Without what was added the file is as long as it was.
    let mut stripped = after[..end].to_vec();
    stripped.extend_from_slice(&after[end + growth as usize..]);

    let mut open: Vec<Range<usize>> = Vec::new();
    // Where the tables are, and their entries, which `layout` has compared.
    open.push(32..48);
    let number = |at: usize| {
        let bytes = before[at..at + 8].try_into().unwrap_or([0; 8]);
        u64::from_le_bytes(bytes)
    };
    let moved = |at: usize| {
        let place = number(at);
        let bytes = after[at..at + 8].try_into().unwrap_or([0; 8]);
        let expected = place + if place >= end as u64 { growth } else { 0 };
        (u64::from_le_bytes(bytes) == expected, place as usize)
    };
    let (segments_right, segments) = moved(32);
    let (sections_right, sections) = moved(40);
    if !segments_right || !sections_right {
        return Err(CheckError::Layout("the tables".to_owned()));
    }
    // Names, flags, alignments of segments and sizes of entries are not among what `layout` has compared.
    for at in (0..old.segments.len()).map(|i| segments + 56 * i) {
        open.extend([at..at + 4, at + 8..at + 24, at + 32..at + 48]);
    }
    for at in (0..old.sections.len()).map(|i| sections + 64 * i) {
        open.extend([at + 4..at + 8, at + 16..at + 56]);
    }
    for (index, section) in old.sections.iter().enumerate() {
        let range = section.offset as usize..(section.offset + section.size) as usize;
        let own = format!(".nv.info.{}", old.symbols[symbol].name);
        if index == text {
            open.push(range);
        } else if section.kind == 2 {
            // `st_size` of the kernel.
            let at = range.start + 24 * symbol + 16;
            open.push(at..at + 8);
        } else if section.name == ".nv.info" || section.name == own {
            let within = attributes(old.data(index), new.data(index), symbol, &section.name)?;
            open.extend(
                within
                    .into_iter()
                    .map(|r| range.start + r.start..range.start + r.end),
            );
        }
    }
    for (at, (was, is)) in before.iter().zip(&stripped).enumerate() {
        if was != is && !open.iter().any(|range| range.contains(&at)) {
            let here = |s: &&crate::elf::Section| {
                s.is_stored() && (s.offset..s.offset + s.size).contains(&(at as u64))
            };
            let name = old.sections.iter().find(here).map(|s| s.name.clone());
            return Err(CheckError::Changed(
                name.unwrap_or_else(|| format!("byte {at:#x} of the file")),
            ));
        }
    }
    Ok(())
}

/// Bytes of an attribute list that may differ: numbers of the kernel's own registers, stack and exits.
fn attributes(
    old: &[u8],
    new: &[u8],
    symbol: usize,
    section: &str,
) -> Result<Vec<Range<usize>>, CheckError> {
    let changed = || CheckError::Changed(section.to_owned());
    let was = info::attributes(section, old).map_err(|_| changed())?;
    let is = info::attributes(section, new).map_err(|_| changed())?;
    if was.len() != is.len() {
        return Err(changed());
    }
    let mut open = Vec::new();
    for (was, is) in was.iter().zip(&is) {
        if (was.number, was.offset, was.length) != (is.number, is.offset, is.length) {
            return Err(changed());
        }
        match info::meaning(was.number) {
            Some(info::Meaning::Registers | info::Meaning::Stack)
                if was.words(old).first() == Some(&(symbol as u32)) =>
            {
                open.push(was.offset + 4..was.offset + 8);
            }
            Some(info::Meaning::Exits) => open.push(was.offset..was.offset + was.length),
            // A limit of registers is raised to what probes need, and no further.
            _ if was.number == info::MAXREG_COUNT
                && u32::from(was.value) < REGISTERS
                && u32::from(is.value) == REGISTERS =>
            {
                open.push(was.offset - 2..was.offset);
            }
            _ => {}
        }
    }
    Ok(open)
}

fn symbols(old: &Image, new: &Image, kernel: usize) -> Result<(), CheckError> {
    for (index, (was, is)) in old.symbols.iter().zip(&new.symbols).enumerate() {
        let mut expected = was.clone();
        if index == kernel {
            expected.size = new.sections[was.section].size;
        }
        if *is != expected {
            return Err(CheckError::Changed(format!("symbol {}", was.name)));
        }
    }
    Ok(())
}

/// What the driver will believe of the kernels.
fn facts(
    old: &Cubin,
    new: &Cubin,
    kernel: &str,
    growth: u64,
    exits: &[u64],
) -> Result<(), CheckError> {
    if old.arch != new.arch || old.kernels.len() != new.kernels.len() {
        return Err(CheckError::Changed("the kernels".to_owned()));
    }
    for (was, is) in old.kernels.iter().zip(&new.kernels) {
        if was.name != kernel {
            if was != is {
                return Err(CheckError::Changed(was.name.clone()));
            }
            continue;
        }
        let metadata = |what, found: String, expected: String| {
            Err(CheckError::Metadata {
                what,
                found,
                expected,
            })
        };
        let least = was.registers.unwrap_or(0).max(REGISTERS);
        if is.registers != Some(least) {
            return metadata(
                "registers",
                format!("{:?}", is.registers),
                least.to_string(),
            );
        }
        let (frame, stack) = (
            is.frame_size.wrapping_sub(was.frame_size),
            is.min_stack.wrapping_sub(was.min_stack),
        );
        if frame != stack || frame > 1 << 20 {
            return metadata("stack", stack.to_string(), frame.to_string());
        }
        let mut listed: Vec<u64> = is.exits.iter().map(|at| u64::from(*at)).collect();
        listed.sort_unstable();
        // Dead code may end threads without being listed.
        let mut real = exits.to_vec();
        real.sort_unstable();
        if was.exits.len() != is.exits.len() || listed.iter().any(|at| !real.contains(at)) {
            return metadata("exits", format!("{listed:x?}"), format!("{real:x?}"));
        }
        let expected = Kernel {
            registers: is.registers,
            frame_size: is.frame_size,
            min_stack: is.min_stack,
            exits: is.exits.clone(),
            code_bytes: was.code_bytes + growth,
            ..was.clone()
        };
        if *is != expected {
            return Err(CheckError::Changed(was.name.clone()));
        }
    }
    Ok(())
}

/// The kernel's code before and after.
struct Code {
    arch: Arch,
    old: Vec<Word>,
    new: Vec<Word>,
    exit: bool,
    /// Probes have a stack.
    stack: bool,
}

impl Code {
    /// Gives where threads end now.
    fn check(&self, entry: bool) -> Result<Vec<u64>, CheckError> {
        let mut stubs: Vec<Range<u64>> = Vec::new();
        let mut probes = Vec::new();
        let mut exits = Vec::new();
        for (index, (was, is)) in self.old.iter().zip(&self.new).enumerate() {
            let at = (index * BYTES) as u64;
            if index == 0 && entry {
                let stub = self.leads(at, *was, *is, Predicate::ALWAYS, Predicate::ALWAYS)?;
                let mut end = self.stub(stub, at, &mut probes, false)?;
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

    fn differs(&self, at: u64, was: Word, is: Word) -> CheckError {
        CheckError::Instruction {
            at,
            was: was.0,
            is: is.0,
        }
    }

    fn word(&self, at: u64) -> Option<Word> {
        self.new.get(at as usize / BYTES).copied()
    }

    fn expect(
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
    fn leads(
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

    /// An instruction is what it was but for a barrier that says when it is done with its registers.
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

    /// The part of a stub that calls; gives where it goes on. What it calls is noted.
    fn stub(
        &self,
        stub: u64,
        site: u64,
        probes: &mut Vec<u64>,
        at_exit: bool,
    ) -> Result<u64, CheckError> {
        const STEP: u64 = BYTES as u64;
        let mut at = stub;
        let first = self.expect(at, "the beginning of a call", |_, insn| insn.is_some())?;
        if at_exit && first.control().wait != ALL_BARRIERS {
            return Err(CheckError::Added {
                at,
                expected: "behind all barriers",
            });
        }
        if self.stack {
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
        let mut arguments = [0u64; 6];
        for (register, value) in [4, 5, 6, 7, 20, 21].into_iter().zip(&mut arguments) {
            let word = self.expect(at, "an argument", |_, insn| {
                insn.is_some_and(|i| i.op == Op::MovImm && always(&i) && i.target == register)
            })?;
            *value = Insn::decode(word, self.arch).map_or(0, |i| u64::from(i.number));
            at += STEP;
        }
        let region = self.word(at).and_then(|w| Insn::decode(w, self.arch));
        let region = region.filter(|i| i.op == Op::Bssy && always(i) && !at_exit);
        let opened = at;
        if region.is_some() {
            at += STEP;
        }
        let call = self.expect(at, "a call behind all barriers", |_, insn| {
            insn.is_some_and(|i| {
                i.op == Op::CallRel && always(&i) && i.control.wait == ALL_BARRIERS
            })
        })?;
        probes.extend(call.leads_to(at, self.arch));
        at += STEP;
        let back = arguments[4] | arguments[5] << 32;
        if back != at || arguments[2] | arguments[3] << 32 != site {
            return Err(CheckError::Added {
                at: stub,
                expected: "a call with this place and the way back",
            });
        }
        if let Some(region) = region {
            self.expect(at, "the end of its region", |_, insn| {
                insn.is_some_and(|i| i.op == Op::Bsync && always(&i) && i.barrier == region.barrier)
            })?;
            at += STEP;
            if self
                .word(opened)
                .and_then(|w| w.leads_to(opened, self.arch))
                != Some(at)
            {
                return Err(CheckError::Added {
                    at: opened,
                    expected: "a region up to here",
                });
            }
        }
        Ok(at)
    }

    /// What was added and is no stub: probes, which stay within themselves, and nothing behind the last stub.
    fn added(&self, stubs: &mut [Range<u64>], probes: &[u64]) -> Result<(), CheckError> {
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
                        _ => false,
                    },
                    Family::Barrier => false,
                    Family::Plain => true,
                }
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

fn always(insn: &Insn) -> bool {
    insn.guard == Predicate::ALWAYS && insn.second == Predicate::ALWAYS
}

/// It may still use registers when the next instructions are issued, and nothing tells when it is done.
fn is_late(word: Word) -> bool {
    let control = word.control();
    late(word) != Late::Nothing && control.read == NO_BARRIER && control.write == NO_BARRIER
}

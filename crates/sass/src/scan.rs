//! What must be known of a kernel's code before anything is put into it: where threads end, what
//! leads where, and which instructions still read registers when the next ones are issued.

use crate::arch::Arch;
use crate::error::Refusal;
use crate::file::File;
use crate::info;
use crate::kinds::{ends_group_products, is_group_product, late};
use crate::table::{Family, Late, Op, base, family};
use crate::word::{BYTES, Control, Insn, NO_BARRIER, Word};

/// A kernel's code.
#[derive(Debug, Clone)]
pub(crate) struct Code {
    pub(crate) words: Vec<Word>,
    /// Offsets of the instructions that end threads.
    pub(crate) exits: Vec<u64>,
    /// Offsets of instructions that nothing waits for and that may read registers late.
    pub(crate) unguarded: Vec<u64>,
    /// Barriers that somebody counts, as bits.
    counted: u8,
    /// It goes to other sections.
    pub(crate) calls_out: bool,
}

impl Code {
    /// Reads the code in a section.
    pub(crate) fn read(code: &[u8], arch: Arch) -> Result<Code, Refusal> {
        let size = (code.len() / BYTES * BYTES) as u64;
        let mut found = Code {
            words: Vec::with_capacity(code.len() / BYTES),
            exits: Vec::new(),
            unguarded: Vec::new(),
            counted: 0,
            calls_out: false,
        };
        for at in (0..size).step_by(BYTES) {
            let Some(word) = Word::at(code, at as usize) else {
                continue;
            };
            match word.leads_to(at, arch) {
                Some(0) => return Err(Refusal::LeadsToEntry { at }),
                Some(to) if to >= size || !to.is_multiple_of(BYTES as u64) => {
                    return Err(Refusal::LeadsOut { at });
                }
                _ => {}
            }
            found.note(at, word);
            found.words.push(word);
        }
        Ok(found)
    }

    fn note(&mut self, at: u64, word: Word) {
        match word.base() {
            base::EXIT => self.exits.push(at),
            base::DEPBAR if word.bits(38, 6) != 0 => self.counted |= 1 << word.bits(44, 3),
            base::CALL_ABS | base::JMP | base::JMX => self.calls_out = true,
            base::CALL_REL if word.is_indirect() => self.calls_out = true,
            _ => {}
        }
        if !is_waited_for(word) && late(word) != Late::Nothing {
            self.unguarded.push(at);
        }
    }

    /// What the kernel begins with must be the load of its stack pointer: the table has its forms.
    pub(crate) fn check_first(&self, arch: Arch) -> Result<Word, Refusal> {
        let word = self.words.first().copied().unwrap_or(Word(0));
        let known = Insn::decode(word, arch).is_some_and(|insn| {
            matches!(insn.op, Op::Ldc | Op::MovConst | Op::ImadMovConst)
                && insn.target == 1
                && insn.number == arch.stack_pointer()
        });
        if known {
            Ok(word)
        } else {
            Err(Refusal::FirstInstruction { word: word.0 })
        }
    }

    /// Every way out of the kernel is an exit of a known form, and in this section.
    pub(crate) fn check_exits(&self, file: &File<'_>, section: usize) -> Result<(), Refusal> {
        for (word, at) in self.words.iter().zip((0u64..).step_by(BYTES)) {
            if family(word.opcode()) != Family::Control {
                continue;
            }
            let control = word.control();
            match word.base() {
                base::EXIT => {
                    let known = Insn::decode(*word, file.arch()).is_some();
                    let bare = control.read == NO_BARRIER && control.write == NO_BARRIER;
                    if !known || !bare {
                        return Err(Refusal::ExitForm { at, word: word.0 });
                    }
                }
                base::BSYNC
                | base::BREAK
                | base::CALL_ABS
                | base::CALL_REL
                | base::BSSY
                | base::YIELD
                | base::BRA
                | base::WARPSYNC
                | base::BRX
                | base::BRX_UNIFORM
                | base::JMP
                | base::JMX
                | base::LEPC
                | base::RET
                | base::BMOV
                | base::BMOV_64
                | base::BPT
                | base::NANOSLEEP => {}
                _ => {
                    return Err(Refusal::ControlFlow {
                        at,
                        opcode: word.opcode(),
                    });
                }
            }
        }
        let ending = self.calls_out.then(|| file.ends_elsewhere(section));
        match ending.flatten() {
            Some(other) => Err(Refusal::ExitsElsewhere {
                section: file.image.sections[other].name.clone(),
            }),
            None => Ok(()),
        }
    }

    /// The instructions that get a barrier, and which one.
    pub(crate) fn barrier(&self) -> Result<Option<u8>, Refusal> {
        let mut product = None;
        for (word, at) in self.words.iter().zip((0u64..).step_by(BYTES)) {
            // In the order of the code, which is that of execution but for loops and cold paths.
            if is_group_product(*word) {
                product = Some((at, word.opcode()));
            } else if ends_group_products(*word) {
                product = None;
            } else if let (base::EXIT, Some((at, opcode))) = (word.base(), product) {
                return Err(Refusal::Unprotected { at, opcode });
            }
        }
        match self.unguarded.is_empty() {
            true => Ok(None),
            false => self.free_barrier().map(Some),
        }
    }

    /// A barrier for instructions that nothing waits for, all of which are known.
    pub(crate) fn free_barrier(&self) -> Result<u8, Refusal> {
        for at in &self.unguarded {
            let word = self.words[*at as usize / BYTES];
            if late(word) == Late::Unknown {
                return Err(Refusal::Unprotected {
                    at: *at,
                    opcode: word.opcode(),
                });
            }
        }
        free_of(self.counted).ok_or(Refusal::NoBarrier)
    }
}

/// A barrier that nobody counts. Who counts one down to some number would wait for other
/// instructions too: right, but later than needed.
pub(crate) fn free_of(counted: u8) -> Option<u8> {
    (0..6).rev().find(|barrier| counted & 1 << barrier == 0)
}

/// A barrier tells when the instruction is done with its registers.
pub(crate) fn is_waited_for(word: Word) -> bool {
    word.control().read != NO_BARRIER || word.control().write != NO_BARRIER
}

/// The same instruction with a barrier that does.
pub(crate) fn guarded(word: Word, barrier: u8) -> Word {
    let control = word.control();
    word.with_control(match late(word) {
        Late::Reads => Control {
            read: barrier,
            ..control
        },
        Late::Writes => Control {
            write: barrier,
            ..control
        },
        Late::Nothing | Late::Unknown => control,
    })
}

/// No place of a relocation is among `patched`.
pub(crate) fn check_relocations(
    file: &File<'_>,
    section: usize,
    patched: &[u64],
) -> Result<(), Refusal> {
    for entry in file.relocations(section) {
        let at = entry.first_chunk().map_or(0, |at| u64::from_le_bytes(*at));
        let word = at / BYTES as u64 * BYTES as u64;
        if patched.contains(&word) {
            return Err(Refusal::Relocated { at: word });
        }
    }
    Ok(())
}

/// Nothing in the kernel's attributes speaks of an instruction in `patched`, and indirect branches
/// do not lead to the first one.
pub(crate) fn check_attributes(
    section: &str,
    data: &[u8],
    code: &Code,
    patched: &[u64],
) -> Result<(), Refusal> {
    let mut targets = None;
    for attribute in info::attributes(section, data)? {
        let name = || info::name(attribute.number);
        match info::meaning(attribute.number) {
            None => {
                return Err(Refusal::UnknownAttribute {
                    section: section.to_owned(),
                    attribute: name(),
                });
            }
            Some(info::Meaning::Refused) => {
                return Err(Refusal::RefusedAttribute { attribute: name() });
            }
            Some(info::Meaning::Places) => {
                for at in attribute.words(data) {
                    if patched.contains(&at.into()) {
                        return Err(Refusal::ListedPlace {
                            attribute: name(),
                            at: at.into(),
                        });
                    }
                }
            }
            Some(info::Meaning::Exits) => {
                for at in attribute.words(data) {
                    if !code.exits.contains(&at.into()) {
                        return Err(Refusal::ListedExit { at: at.into() });
                    }
                }
            }
            Some(info::Meaning::Plain | info::Meaning::Registers | info::Meaning::Stack) => {}
        }
        if attribute.number == info::INDIRECT_BRANCH_TARGETS {
            targets = Some(attribute.words(data));
        }
    }
    let indirect = |w: &&Word| matches!(w.base(), base::BRX | base::BRX_UNIFORM | base::JMX);
    let branches: Vec<u64> = code
        .words
        .iter()
        .zip((0u64..).step_by(BYTES))
        .filter(|(word, _)| indirect(word))
        .map(|(_, at)| at)
        .collect();
    if let Some(at) = branches.first() {
        let targets = targets.ok_or(Refusal::IndirectBranch { at: *at })?;
        branch_targets(&targets, &branches)?;
    }
    Ok(())
}

/// The list has for each branch its offset, a word that is zero, the number of targets, and those.
fn branch_targets(list: &[u32], branches: &[u64]) -> Result<(), Refusal> {
    let mut rest = list;
    let mut listed = Vec::new();
    while let [at, _, count, more @ ..] = rest {
        let targets = more.get(..*count as usize);
        let at = u64::from(*at);
        let targets = targets.ok_or(Refusal::IndirectBranch { at })?;
        if targets.contains(&0) {
            return Err(Refusal::LeadsToEntry { at });
        }
        listed.push(at);
        rest = &more[*count as usize..];
    }
    match branches.iter().find(|at| !listed.contains(at)) {
        Some(at) => Err(Refusal::IndirectBranch { at: *at }),
        None => Ok(()),
    }
}

//! A probe's machine code: a function that `ptxas --compile-as-tools-patch` made, checked and freed
//! of the places that its own file's loader would fill in.
//!
//! Such a function keeps to a convention that lets it stand in foreign code: at most 24 registers,
//! no uniform ones, stack in R1, arguments from R4 on (`u64 userdata`, `u64 pc`), the result in R4,
//! the return address in R20 and R21. What it may change is dead at a kernel's first instruction
//! and where a thread ends.

use std::collections::BTreeMap;

use crate::arch::Arch;
use crate::elf::Image;
use crate::error::Refusal;
use crate::info;
use crate::kinds::kept_barrier;
use crate::table::{Family, Op, base, family};
use crate::word::{BYTES, Insn, Predicate, Word};

/// Registers of the convention.
pub const REGISTERS: u32 = 24;
/// Bytes of local memory that a thread has at most.
const LOCAL_MEMORY: u32 = 512 << 10;

/// Relocations: low and high half of an address in a `MOV`, and the target of a call.
const R_MOV_LOW: u32 = 0x38;
const R_MOV_HIGH: u32 = 0x39;
/// By architecture.
const R_CALL: [u32; 2] = [0x3a, 0x4b];
const SHT_RELA: u64 = 4;
const SHT_REL: u64 = 9;

/// A function and those that it calls, one behind the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Architecture.
    pub arch: Arch,
    /// Its instructions; the first is where it is called.
    pub words: Vec<Word>,
    /// What depends on where it is put.
    pub(crate) fixes: Vec<Fix>,
    /// Registers per thread.
    pub registers: u32,
    /// Stack per thread in bytes, all functions together.
    pub stack: u32,
    /// It has branches that lanes may take differently.
    pub branches: bool,
    /// Lanes of a group wait for each other in it.
    pub meets: bool,
    /// Convergence barriers that it uses, as bits.
    pub barriers: u16,
}

/// An instruction that depends on where the probe is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fix {
    /// Index of the instruction.
    pub(crate) index: usize,
    pub(crate) kind: FixKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FixKind {
    /// Low half of the address, relative to the kernel, of this offset in the probe.
    Low(u64),
    /// High half of the same.
    High,
    /// Calls this offset in the probe.
    Call(u64),
    /// Returns.
    Return,
}

struct Function {
    name: String,
    section: usize,
    /// Offset in the probe.
    start: u64,
}

/// A probe and what it is given.
#[derive(Debug, Clone, Copy)]
pub struct Hook<'a> {
    /// The code.
    pub probe: &'a Probe,
    /// Its first argument. The second is the offset in the kernel's code of the instruction that
    /// the probe stands before: 0 at the entry. The third is what a launch tells
    /// ([`Launch`](crate::Launch)), up to four words of it.
    pub userdata: u64,
}

impl Probe {
    /// Reads `function` of a cubin.
    ///
    /// # Errors
    /// [`Refusal`]: it is no such function, or has something that cannot stand in a kernel.
    pub fn parse(cubin: &[u8], function: &str) -> Result<Probe, Refusal> {
        let image = Image::parse(cubin).map_err(Refusal::ProbeElf)?;
        let mut loader = Loader {
            image: &image,
            functions: BTreeMap::new(),
            open: Vec::new(),
            probe: Probe {
                arch: image.arch,
                words: Vec::new(),
                fixes: Vec::new(),
                registers: 0,
                stack: 0,
                branches: false,
                meets: false,
                barriers: 0,
            },
        };
        let symbol = image
            .symbols
            .iter()
            .find(|s| s.is_function && s.name == function)
            .ok_or_else(|| Refusal::NotAProbe {
                function: function.to_owned(),
            })?;
        loader.place(symbol.index)?;
        loader.resources()?;
        Ok(loader.probe)
    }
}

struct Loader<'i> {
    image: &'i Image,
    /// By symbol.
    functions: BTreeMap<u32, Function>,
    /// Functions that are being read, to find those that call themselves.
    open: Vec<u32>,
    probe: Probe,
}

impl Loader<'_> {
    /// Puts a function behind what is there, and then those that it calls; gives its offset.
    fn place(&mut self, symbol: u32) -> Result<u64, Refusal> {
        if let Some(known) = self.functions.get(&symbol) {
            if self.open.contains(&symbol) {
                return Err(Refusal::ProbeRecursion {
                    function: known.name.clone(),
                });
            }
            return Ok(known.start);
        }
        let image = self.image;
        let found = &image.symbols[symbol as usize];
        let name = found.name.clone();
        let not_ours = || Refusal::NotAProbe {
            function: name.clone(),
        };
        let section = found.section;
        let whole = image.sections.get(section).ok_or_else(not_ours)?;
        if found.is_kernel || found.value != 0 || found.size != whole.size {
            return Err(not_ours());
        }
        let list = format!(".nv.info.{name}");
        let listed = image.section(&list).ok_or_else(not_ours)?;
        // A function that another calls bears no mark of its own; it came out of the same run.
        let marked = info::attributes(&list, image.data(listed))?
            .iter()
            .any(|a| a.number == info::TOOLS_PATCH_FUNC);
        if self.open.is_empty() && !marked {
            return Err(not_ours());
        }
        let code = image.data(section);
        let start = (self.probe.words.len() * BYTES) as u64;
        let words = code.len() / BYTES;
        for index in 0..words {
            let word = Word::at(code, index * BYTES).ok_or_else(not_ours)?;
            self.probe.words.push(word);
        }
        let function = Function {
            name: name.clone(),
            section,
            start,
        };
        self.functions.insert(symbol, function);
        self.open.push(symbol);
        let relocated = self.relocations(&name, section, start)?;
        for index in 0..words {
            let word = self.probe.words[start as usize / BYTES + index];
            let at = (index * BYTES) as u64;
            self.instruction(&name, code.len() as u64, at, start, word, &relocated)?;
        }
        self.open.pop();
        Ok(start)
    }

    fn instruction(
        &mut self,
        function: &str,
        size: u64,
        at: u64,
        start: u64,
        word: Word,
        relocated: &[u64],
    ) -> Result<(), Refusal> {
        let refused = |why| Refusal::ProbeInstruction {
            function: function.to_owned(),
            at,
            opcode: word.opcode(),
            why,
        };
        let arch = self.probe.arch;
        let known = Insn::decode(word, arch);
        let always =
            known.is_some_and(|k| k.guard == Predicate::ALWAYS && k.second == Predicate::ALWAYS);
        if let Some(to) = word.leads_to(at, arch)
            && to >= size
        {
            return Err(refused("it leads out of the function"));
        }
        match family(word.opcode()) {
            Family::Control => match (word.base(), known.map(|k| k.op)) {
                (base::BRA, _) => self.probe.branches |= !always,
                (_, Some(Op::Bssy | Op::Bsync | Op::Break)) => {
                    let number = known.map_or(0, |k| k.barrier);
                    self.probe.barriers |= 1 << number;
                }
                (base::RET, Some(Op::RetAbs)) => {
                    self.probe.branches |= !always;
                    self.probe.fixes.push(Fix {
                        index: (start + at) as usize / BYTES,
                        kind: FixKind::Return,
                    });
                }
                (base::BMOV | base::BMOV_64, _) if kept_barrier(word).is_some() => {
                    let number = kept_barrier(word).unwrap_or(0);
                    self.probe.barriers |= 1 << number;
                }
                (base::NANOSLEEP | base::YIELD, _) => {}
                (base::CALL_ABS, _) if relocated.contains(&at) => {}
                (base::WARPSYNC, Some(Op::WarpSync)) => self.probe.meets = true,
                (base::WARPSYNC, _) => return Err(refused("it waits for other lanes")),
                (base::EXIT, _) => return Err(refused("it ends the thread")),
                _ => return Err(refused("its control flow is not known")),
            },
            Family::Barrier => return Err(refused("it waits for other threads")),
            Family::Plain if has_constant(word) && word.bits(54, 5) != 0 => {
                return Err(refused("it reads constants that the kernel does not have"));
            }
            Family::Plain => {}
        }
        Ok(())
    }

    /// Resolves the relocations of a function; gives the offsets of those at calls.
    fn relocations(
        &mut self,
        function: &str,
        section: usize,
        start: u64,
    ) -> Result<Vec<u64>, Refusal> {
        let image = self.image;
        let mut calls = Vec::new();
        let lists =
            image.sections.iter().enumerate().filter(|(_, s)| {
                matches!(s.kind, SHT_RELA | SHT_REL) && s.info as usize == section
            });
        for (number, list) in lists {
            let size = if list.kind == SHT_RELA { 24 } else { 16 };
            for entry in image.data(number).chunks_exact(size) {
                let word = |at: usize| {
                    let bytes = entry.get(at..at + 8).unwrap_or(&[0; 8]);
                    u64::from_le_bytes(bytes.try_into().unwrap_or([0; 8]))
                };
                let (at, info) = (word(0), word(8));
                let (kind, symbol) = (info as u32, (info >> 32) as u32);
                let target = image.symbols.get(symbol as usize);
                let unknown = || Refusal::ProbeRelocation {
                    function: function.to_owned(),
                    kind,
                    symbol: target.map_or_else(String::new, |t| t.name.clone()),
                    at,
                };
                let callable = target.is_some_and(|t| t.is_function && t.section != 0);
                if !callable || !at.is_multiple_of(BYTES as u64) {
                    return Err(unknown());
                }
                let index = (start + at) as usize / BYTES;
                let here = *self.probe.words.get(index).ok_or_else(unknown)?;
                // Without a field of its own the addend is what stands in the instruction.
                let addend = match (size, kind) {
                    (24, _) => word(16),
                    (_, R_MOV_LOW) => here.bits(32, 32) as u64,
                    _ => 0,
                };
                let is_mov = Insn::decode(here, image.arch).is_some_and(|i| i.op == Op::MovImm);
                let kind = match kind {
                    R_MOV_LOW | R_MOV_HIGH if is_mov && !self.open.contains(&symbol) => {
                        return Err(unknown());
                    }
                    // Return addresses are relative to the function that they are in.
                    R_MOV_LOW if is_mov => FixKind::Low(self.functions[&symbol].start + addend),
                    R_MOV_HIGH if is_mov => FixKind::High,
                    kind if R_CALL.contains(&kind) && is_bare_call(here) && addend == 0 => {
                        calls.push(at);
                        FixKind::Call(self.place(symbol)?)
                    }
                    _ => return Err(unknown()),
                };
                self.probe.fixes.push(Fix { index, kind });
            }
        }
        Ok(calls)
    }

    fn resources(&mut self) -> Result<(), Refusal> {
        let image = self.image;
        let Some(list) = image.section(".nv.info") else {
            return Err(Refusal::NoAttribute {
                attribute: "REGCOUNT",
            });
        };
        let data = image.data(list);
        let (mut counted, mut framed) = (0, 0);
        for attribute in info::attributes(".nv.info", data)? {
            let words = attribute.words(data);
            let &[symbol, value] = words.as_slice() else {
                continue;
            };
            if !self.functions.contains_key(&symbol) {
                continue;
            }
            match attribute.number {
                info::REGCOUNT => {
                    counted += 1;
                    self.probe.registers = self.probe.registers.max(value);
                }
                info::FRAME_SIZE => {
                    framed += 1;
                    self.probe.stack = self.probe.stack.saturating_add(value);
                }
                _ => {}
            }
        }
        if counted < self.functions.len() || framed < self.functions.len() {
            return Err(Refusal::NoAttribute {
                attribute: "REGCOUNT` and `FRAME_SIZE",
            });
        }
        // In the section's header on some architectures.
        for function in self.functions.values() {
            let header = image.sections[function.section].info >> 24;
            self.probe.registers = self.probe.registers.max(header as u32);
        }
        if self.probe.registers > REGISTERS {
            return Err(Refusal::ProbeRegisters {
                registers: self.probe.registers,
            });
        }
        if self.probe.stack > LOCAL_MEMORY {
            return Err(Refusal::ProbeStack {
                bytes: self.probe.stack,
            });
        }
        // The stack pointer of a kernel is aligned to 16 bytes and stays so.
        self.probe.stack = self.probe.stack.next_multiple_of(16);
        Ok(())
    }
}

/// A call whose target is still to be filled in.
fn is_bare_call(word: Word) -> bool {
    word.opcode() == 0x943 && word.bits(16, 8) == 0 && word.bits(32, 52) == 0
}

/// The instruction has an operand in a constant bank: its form says so, or it is a load from one.
fn has_constant(word: Word) -> bool {
    const LDC: u16 = 0xb82;
    // Memory and texture instructions use the form for other things.
    matches!(word.opcode() >> 9, 3 | 5) && word.base() < 0x160 || word.opcode() == LDC
}

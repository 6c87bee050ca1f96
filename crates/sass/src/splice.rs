//! The edit itself: what is put where.
//!
//! Behind the kernel's code come the probes, then the stub of the entry, then one for each exit; or
//! one for each access to memory ([`crate::memory`]).

use warpbpf_fatbin::Kernel;

use crate::access::Access;
use crate::check::{self, Put};
use crate::elf::Image;
use crate::error::Refusal;
use crate::file::{File, Place};
use crate::hidden::{Hidden, Launch, Longer};
use crate::info;
use crate::kinds::is_matrix_product;
use crate::number::Number;
use crate::probe::{Hook, REGISTERS};
use crate::scan::{Code, check_attributes, check_relocations, guarded};
use crate::text::Text;
use crate::word::{BYTES, Word};

/// Registers of a multiprocessor.
const REGISTER_FILE: u32 = 65536;
/// Most threads of a block.
const MAX_THREADS: u32 = 1024;
/// Most registers of a thread, with the one that is always zero.
const MAX_REGISTERS: u32 = 256;

/// What an edit changes of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Registers per thread before and after.
    pub registers: (u32, u32),
    /// Stack per thread that is added, in bytes.
    pub stack: u32,
    /// Bytes of code before and after.
    pub code_bytes: (u64, u64),
    /// Exits that get the probe: where each was, and where threads end then.
    pub exits: Vec<(u64, u64)>,
    /// Instructions that are given a barrier, because they may still read or write registers when a
    /// thread comes to an exit, or to an access with a probe.
    pub guarded: usize,
    /// Accesses to memory that get the probe.
    pub accesses: Vec<Access>,
    /// Instructions that access global memory, or may, of other kinds than those: they get none.
    pub other_accesses: usize,
    /// The parameter that launches append.
    pub hidden: Option<Hidden>,
}

/// Probes for one kernel of a file, which is as it was: [`File::write`] puts them in.
#[derive(Debug, Clone)]
pub struct Edit {
    /// What it changes.
    pub change: Change,
    pub(crate) kernel: String,
    pub(crate) place: Place,
    pub(crate) entry: bool,
    pub(crate) exit: bool,
    pub(crate) accesses: bool,
    /// The kernel's own instructions that become other ones.
    pub(crate) changed: Vec<(u64, Word)>,
    /// Its code behind those. [`File::write`] checks what it writes, whatever stands here.
    pub added: Vec<Word>,
    /// Where in that each half of a probe's first argument is set, one behind the other.
    pub(crate) userdata: Vec<usize>,
    pub(crate) numbers: Vec<Number>,
    /// What a launch tells, and what is longer for it.
    pub(crate) launch: Launch,
    pub(crate) longer: Option<Longer>,
}

/// What is known of a kernel that can have probes.
pub(crate) struct Examined<'f> {
    pub(crate) facts: &'f Kernel,
    pub(crate) place: Place,
    pub(crate) code: Code,
    /// Its first instruction.
    pub(crate) first: Word,
    /// What instructions get that nothing waits for.
    pub(crate) barrier: Option<u8>,
}

impl File<'_> {
    /// Makes the edit of one kernel, and looks at nothing else of the file. What was made of its
    /// code is checked.
    ///
    /// # Errors
    /// [`Refusal`]: something in the kernel, the probe or the file is not understood, or the code
    /// did not pass its check.
    pub fn edit(
        &self,
        kernel: &str,
        entry: Option<Hook<'_>>,
        exit: Option<Hook<'_>>,
    ) -> Result<Edit, Refusal> {
        self.edit_with_launch_args(kernel, entry, exit, Launch::default())
    }

    /// The same with probes that get launch arguments: each launch must append the parameter of
    /// [`Change::hidden`].
    ///
    /// # Errors
    /// As [`File::edit`]; and the kernel can have no such parameter.
    pub fn edit_with_launch_args(
        &self,
        kernel: &str,
        entry: Option<Hook<'_>>,
        exit: Option<Hook<'_>>,
        launch: Launch,
    ) -> Result<Edit, Refusal> {
        let arch = self.image.arch;
        self.facts(kernel)?;
        let hooks = [entry, exit];
        if hooks.iter().all(Option::is_none) {
            return Err(Refusal::NoProbe);
        }
        if hooks.iter().flatten().any(|h| h.probe.arch != arch) {
            return Err(Refusal::ProbeArch);
        }
        if exit.is_some_and(|hook| hook.probe.meets) {
            return Err(Refusal::ProbeMeets);
        }
        let examined = self.examined(kernel, entry.is_some(), exit.is_some())?;
        let (place, code, barrier) = (examined.place, &examined.code, examined.barrier);

        let (longer, numbers_of_longer) = self.longer((kernel, place), launch)?.unzip();
        let launch_at = longer.as_ref().map_or(0, |longer| longer.in_bank(arch));
        let probes = || hooks.iter().flatten().map(|h| h.probe);
        let stack = probes().map(|p| p.stack).max().unwrap_or(0);
        let mut text = Text {
            arch,
            words: code.words.clone(),
            launch,
            launch_at,
            stack: stack > 0,
            settles: code.words.iter().any(|word| is_matrix_product(*word)),
            userdata: Vec::new(),
        };
        if let Some(barrier) = barrier {
            for at in &code.unguarded {
                text.change(*at, |word| guarded(word, barrier));
            }
        }
        let ways = text.add_probes(hooks, code.exits.len())?;
        if let (Some(hook), Some(way)) = (entry, ways[0]) {
            text.entry(hook, way, examined.first)?;
        }
        let mut exits = Vec::new();
        if let (Some(hook), Some(way)) = (exit, ways[1]) {
            for at in &code.exits {
                exits.push((*at, text.exit(hook, way, *at)?));
            }
        }
        text.fill();

        let needed = probes().map(|p| p.registers).max().unwrap_or(0);
        let registers = self.room(&examined, needed)?;
        let mut numbers = self.changed_numbers(place, registers.1, stack, &exits)?;
        numbers.extend(numbers_of_longer.into_iter().flatten());
        let edit = Edit {
            change: Change {
                registers,
                stack,
                code_bytes: (self.image.sections[place.text].size, text.end()),
                exits,
                guarded: barrier.map_or(0, |_| code.unguarded.len()),
                accesses: Vec::new(),
                other_accesses: 0,
                hidden: longer.as_ref().map(|longer| longer.hidden),
            },
            kernel: kernel.to_owned(),
            place,
            entry: entry.is_some(),
            exit: exit.is_some(),
            accesses: false,
            changed: differences(&code.words, &text.words),
            added: text.words[code.words.len()..].to_vec(),
            userdata: text.userdata_behind(code.words.len()),
            numbers,
            launch,
            longer,
        };
        let code = (&code.words[..], &text.words[..]);
        check::check_code(arch, code, edit.put(), (stack, launch_at))?;
        Ok(edit)
    }

    /// Whether a kernel can have probes at its entry, its exits, or both, as far as it does not
    /// depend on the probes.
    ///
    /// # Errors
    /// [`Refusal`]: something in the kernel or the file is not understood.
    pub fn can_have(&self, kernel: &str, entry: bool, exit: bool) -> Result<(), Refusal> {
        let examined = self.examined(kernel, entry, exit)?;
        let (_, registers) = self.room(&examined, 0)?;
        self.changed_numbers(examined.place, registers, 0, &[])?;
        Ok(())
    }

    fn examined(&self, kernel: &str, entry: bool, exit: bool) -> Result<Examined<'_>, Refusal> {
        let arch = self.image.arch;
        let facts = self.facts(kernel)?;
        let place = self.place(kernel)?;
        let code = Code::read(self.image.data(place.text), arch)?;
        let first = code.check_first(arch)?;
        let mut patched = Vec::new();
        let mut barrier = None;
        if entry {
            patched.push(0);
        }
        if exit {
            code.check_exits(self, place.text)?;
            barrier = code.barrier()?;
            patched.extend(&code.exits);
        }
        check_relocations(self, place.text, &patched)?;
        let list = &self.image.sections[place.info].name;
        check_attributes(list, self.image.data(place.info), &code, &patched)?;
        Ok(Examined {
            facts,
            place,
            code,
            first,
            barrier,
        })
    }

    /// Registers before and after, of probes that need so many; and its code can be longer.
    pub(crate) fn room(&self, examined: &Examined<'_>, needed: u32) -> Result<(u32, u32), Refusal> {
        let old = examined.facts.registers.ok_or(Refusal::NoAttribute {
            attribute: "REGCOUNT",
        })?;
        // The stubs set registers themselves, up to the last one of the convention.
        let registers = old.max(needed).max(REGISTERS);
        check_registers(registers, old, examined.facts.max_threads)?;
        self.can_grow(examined.place)?;
        Ok((old, registers))
    }

    pub(crate) fn changed_numbers(
        &self,
        place: Place,
        registers: u32,
        stack: u32,
        exits: &[(u64, u64)],
    ) -> Result<Vec<Number>, Refusal> {
        let mut numbers = Vec::new();
        let data = self.image.data(place.info);
        for attribute in info::attributes(".nv.info", data)? {
            if info::meaning(attribute.number) == Some(info::Meaning::Exits) {
                for (index, old) in attribute.words(data).into_iter().enumerate() {
                    let new = exits.iter().find(|(at, _)| *at == u64::from(old));
                    if let Some((_, new)) = new {
                        let offset = attribute.offset + 4 * index;
                        numbers.push(Number::new(place.info, offset, *new as u32));
                    }
                }
            }
            // A limit that the kernel was compiled with.
            if attribute.number == info::MAXREG_COUNT && u32::from(attribute.value) < registers {
                numbers.push(Number::half(place.info, attribute.offset - 2, registers));
            }
        }
        let data = self.image.data(place.file_info);
        let (mut counted, mut stacks) = (0, 0);
        for attribute in self.numbers(place)? {
            let offset = attribute.offset + 4;
            let mut set = |value| numbers.push(Number::new(place.file_info, offset, value));
            match info::meaning(attribute.number) {
                Some(info::Meaning::Registers) => {
                    counted += 1;
                    set(registers);
                }
                Some(info::Meaning::Stack) => {
                    stacks += 1;
                    let old = attribute.words(data).get(1).copied().unwrap_or(0);
                    set(old.saturating_add(stack));
                }
                Some(info::Meaning::Plain | info::Meaning::Places | info::Meaning::Exits) => {}
                Some(info::Meaning::Refused) | None => {
                    return Err(Refusal::UnknownAttribute {
                        section: ".nv.info".to_owned(),
                        attribute: info::name(attribute.number),
                    });
                }
            }
        }
        if counted != 1 {
            return Err(Refusal::NoAttribute {
                attribute: "REGCOUNT",
            });
        }
        if stack > 0 && stacks < 2 {
            return Err(Refusal::NoAttribute {
                attribute: "MIN_STACK_SIZE",
            });
        }
        Ok(numbers)
    }
}

impl Edit {
    /// The same with another first argument of all its probes ([`Hook::userdata`]).
    #[must_use]
    pub fn with_userdata(&self, userdata: u64) -> Edit {
        let mut edit = self.clone();
        for at in &self.userdata {
            for (at, half) in [(*at, userdata as u32), (*at + 1, (userdata >> 32) as u32)] {
                if let Some(word) = edit.added.get_mut(at) {
                    *word = word.with_number(half);
                }
            }
        }
        edit
    }

    /// What its check has to know.
    pub(crate) fn put(&self) -> Put<'_> {
        Put {
            kernel: &self.kernel,
            entry: self.entry,
            exit: self.exit,
            accesses: self.accesses,
            launch: self.launch,
        }
    }

    /// There is another edit of the same kernel.
    pub(crate) fn twice(&self) -> Refusal {
        Refusal::Twice {
            kernel: self.kernel.clone(),
        }
    }

    /// Writes everything but what is added behind the code.
    pub(crate) fn write(&self, image: &mut Image) {
        let text = self.place.text;
        let code = image.data_mut(text);
        for (at, word) in &self.changed {
            let at = *at as usize;
            code[at..at + BYTES].copy_from_slice(&word.bytes());
        }
        for number in &self.numbers {
            let at = number.offset..number.offset + number.bytes;
            let value = number.value.to_le_bytes();
            image.data_mut(number.section)[at].copy_from_slice(&value[..number.bytes]);
        }
        // Some architectures keep the number in the section's header too.
        let header = &mut image.sections[text];
        if header.info >> 24 != 0 {
            let registers = u64::from(self.change.registers.1);
            header.info = header.info & 0x00ff_ffff | registers << 24;
        }
        image.symbols[self.place.symbol].size = self.change.code_bytes.1;
    }
}

/// Which of the old instructions are others.
pub(crate) fn differences(old: &[Word], new: &[Word]) -> Vec<(u64, Word)> {
    let pairs = old.iter().zip(new).zip((0u64..).step_by(BYTES));
    pairs
        .filter(|((was, is), _)| was != is)
        .map(|((_, is), at)| (at, *is))
        .collect()
}

/// The largest block that the kernel allows must still fit.
fn check_registers(registers: u32, old: u32, bounds: Option<[u32; 3]>) -> Result<(), Refusal> {
    let threads = bounds.map_or(MAX_THREADS, |[x, y, z]| {
        x.saturating_mul(y).saturating_mul(z).min(MAX_THREADS)
    });
    let fits = |registers: u32| {
        let per_block = registers.next_multiple_of(8) * threads.next_multiple_of(32);
        per_block <= REGISTER_FILE
    };
    // A file may say any number. One that did not fit before is launched with fewer threads anyway,
    // and gets no more registers than it had.
    if registers <= MAX_REGISTERS && (fits(registers) || registers == old) {
        Ok(())
    } else {
        Err(Refusal::Registers { registers, threads })
    }
}

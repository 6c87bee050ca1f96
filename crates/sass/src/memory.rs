//! Probes in front of loads and stores of global memory, an experiment for `sm_90`: at each the
//! kernel is in the middle of its work, so everything that a probe may change is saved.
//!
//! The access becomes a branch to a stub behind the code. That saves on the thread's stack every
//! register which the convention of probes does not leave alone, and some more, and the predicates;
//! it calls the probe in the lanes for which the guard of the access holds, restores, does the
//! access and goes back. Nothing else of the kernel may depend on a probe's having been there:
//!
//! - Whatever is in flight is waited for, and where nothing tells when an instruction is done with
//!   its registers it is given a barrier ([`crate::scan`]).
//! - Lanes that come together leave together: a region in a convergence barrier of its own closes
//!   behind the call, and the lanes of the mask that came wait for each other there, since a region
//!   alone was seen to leave them apart behind a probe with `YIELD`. The probe's regions get
//!   barriers that the kernel does not use. Lanes of a warp that come apart may be in the stub at a
//!   time, as the compiler's own code has the same barrier on both sides of a branch.
//! - Registers that a warp has once for all its lanes are not touched, which is a rule for probes.

use crate::access::Access;
use crate::arch::Arch;
use crate::calls::recursion;
use crate::check::check_code;
use crate::error::Refusal;
use crate::file::File;
use crate::hidden::Launch;
use crate::kinds::{is_group_product, is_other_access, is_uniform, late, regions, without_hints};
use crate::probe::{Hook, Probe, REGISTERS};
use crate::scan::{Code, check_attributes, check_relocations, free_of, guarded, is_waited_for};
use crate::splice::{Change, Edit, Examined, differences};
use crate::table::{Family, Late, Op, base, family};
use crate::text::Text;
use crate::word::{ALL_BARRIERS, BYTES, Control, Insn, Predicate, Word};
use crate::write::Spliced;

/// Registers that are saved: all that a function of the convention can name, but for the stack
/// pointer. Of the number that is declared for a function or a kernel the last two are not to be
/// named: a kernel with 24 ends with an illegal instruction where it names R22.
const SAVED: [u8; 21] = [
    0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
];
/// Where the predicates are saved behind them, and the mask of the lanes; bytes of stack in all.
const PREDICATES: u32 = 4 * SAVED.len() as u32;
const LANES: u32 = PREDICATES + 4;
const FRAME: u32 = (LANES + 4).next_multiple_of(STACK_ALIGNMENT as u32);
const _: () = assert!(SAVED[SAVED.len() - 1] as u32 + 3 == REGISTERS);
/// Longer than any instruction takes whose end no barrier tells, but for products of matrices: for
/// these the branch to the stub, this and what follows before the first register is saved are long
/// enough together.
const SETTLED: Control = Control::stall(15);
/// Barrier for what the stub loads and stores.
const OURS: u8 = 0;
/// Instructions of which one writes the register that it names as its target: moves, sums,
/// products, loads, `S2R`.
const WRITING: [u16; 18] = [
    0x002, 0x003, 0x005, 0x007, 0x010, 0x011, 0x012, 0x016, 0x019, 0x024, 0x025, 0x036, 0x119,
    0x181, 0x182, 0x183, 0x184, 0x189,
];
/// What the stack pointer of a kernel is a multiple of, and a probe with a stack wants.
const STACK_ALIGNMENT: i32 = 16;
/// `VIADD`, which adds a number, too.
const VIADD: Word = Word(0x0100_0836);

/// Puts a probe in front of each load and store of global memory of one kernel, which gets no other
/// probes.
///
/// # Errors
/// [`Refusal`]: something in the kernel, the probe or the file is not understood, or the result did
/// not pass its check.
pub fn splice_accesses(cubin: &[u8], kernel: &str, hook: Hook<'_>) -> Result<Spliced, Refusal> {
    let file = File::parse(cubin)?;
    file.with_edit(file.edit_accesses(kernel, hook)?)
}

/// What is known of a kernel's accesses.
struct Accesses {
    all: Vec<Access>,
    others: usize,
    /// Convergence barriers that the kernel does not use, the last first.
    free: Vec<u8>,
    /// Where the stack is moved by what is no multiple of its alignment.
    uneven: Option<u64>,
}

impl File<'_> {
    /// Makes the edit that puts a probe in front of each access of one kernel; see [`File::edit`].
    /// The probe has the parameters that Compute Sanitizer gives at accesses: `u64 userdata, u64
    /// pc, u64 address, u32 size, u32 flags, u64 data`, of which the last is 0.
    ///
    /// # Errors
    /// [`Refusal`]: something in the kernel, the probe or the file is not understood, or the code
    /// did not pass its check.
    pub fn edit_accesses(&self, kernel: &str, hook: Hook<'_>) -> Result<Edit, Refusal> {
        let arch = self.image.arch;
        let (examined, accesses) = self.examined_accesses(kernel)?;
        if hook.probe.arch != arch {
            return Err(Refusal::ProbeArch);
        }
        let probe = waited_for(hook.probe)?;
        if let Some(at) = accesses.uneven.filter(|_| hook.probe.stack > 0) {
            return Err(Refusal::StackUneven { at });
        }
        let (place, code) = (examined.place, &examined.code);
        let mut free = accesses.free.iter().copied();
        let renamed: Vec<(u8, u8)> = (0..16)
            .filter(|barrier| hook.probe.barriers & 1 << barrier != 0)
            .zip(free.by_ref())
            .collect();
        let region = free.next();
        let needed = hook.probe.barriers.count_ones() + 1;
        let Some(region) = region else {
            let free = accesses.free.len() as u32;
            return Err(Refusal::NoRegion { needed, free });
        };

        let mut text = Text {
            arch,
            words: code.words.clone(),
            launch: Launch::default(),
            launch_at: 0,
            stack: true,
            settles: false,
            userdata: Vec::new(),
        };
        let mut guarded_count = 0;
        if let Some(barrier) = examined.barrier {
            for at in &code.unguarded {
                text.change(*at, |word| guarded(word, barrier));
                guarded_count += 1;
            }
            if !is_waited_for(examined.first) {
                text.change(0, |word| {
                    let control = word.control();
                    let write = barrier;
                    word.with_control(Control { write, ..control })
                });
                guarded_count += 1;
            }
        }
        for at in accesses.hints(code) {
            text.change(at, without_hints);
        }
        let of = |barrier: u8| renamed.iter().find(|(old, _)| *old == barrier);
        let start = text.add_probe(&probe, |barrier| of(barrier).map(|(_, new)| *new))?;
        for access in &accesses.all {
            text.access(hook, start, access, region)?;
        }
        text.fill();

        let stack = FRAME + hook.probe.stack;
        let registers = self.room(&examined, hook.probe.registers)?;
        let numbers = self.changed_numbers(place, registers.1, stack, &[])?;
        let edit = Edit {
            change: Change {
                registers,
                stack,
                code_bytes: (self.image.sections[place.text].size, text.end()),
                exits: Vec::new(),
                guarded: guarded_count,
                accesses: accesses.all,
                other_accesses: accesses.others,
                hidden: None,
            },
            kernel: kernel.to_owned(),
            place,
            entry: false,
            exit: false,
            accesses: true,
            changed: differences(&code.words, &text.words),
            added: text.words[code.words.len()..].to_vec(),
            userdata: text.userdata_behind(code.words.len()),
            numbers,
            launch: Launch::default(),
            longer: None,
        };
        let code = (&code.words[..], &text.words[..]);
        check_code(arch, code, edit.put(), (stack, 0))?;
        Ok(edit)
    }

    fn examined_accesses(&self, kernel: &str) -> Result<(Examined<'_>, Accesses), Refusal> {
        let arch = self.image.arch;
        let facts = self.facts(kernel)?;
        if arch != Arch::Sm90 {
            let sm = arch.number();
            return Err(Refusal::AccessArch { sm });
        }
        let place = self.place(kernel)?;
        let code = Code::read(self.image.data(place.text), arch)?;
        let first = code.check_first(arch)?;
        let accesses = Accesses::of(&code, arch)?;
        if code.calls_out {
            return Err(Refusal::CallsOut);
        }
        if let Some(at) = recursion(&code.words, arch) {
            return Err(Refusal::Recursion { at });
        }
        let waits = code.unguarded.is_empty() && is_waited_for(first);
        let barrier = match waits {
            true => None,
            false => Some(code.free_barrier()?),
        };
        let patched: Vec<u64> = accesses.all.iter().map(|access| access.at).collect();
        check_relocations(self, place.text, &patched)?;
        let list = &self.image.sections[place.info].name;
        check_attributes(list, self.image.data(place.info), &code, &patched)?;
        let examined = Examined {
            facts,
            place,
            code,
            first,
            barrier,
        };
        Ok((examined, accesses))
    }
}

impl Accesses {
    /// Instructions in front of accesses that ask for operands to be kept for the next instruction,
    /// which is another one then.
    fn hints(&self, code: &Code) -> Vec<u64> {
        let before = self
            .all
            .iter()
            .filter_map(|a| a.at.checked_sub(BYTES as u64));
        let hints = |at: &u64| code.words[*at as usize / BYTES].control().reuse != 0;
        before.filter(hints).collect()
    }

    fn of(code: &Code, arch: Arch) -> Result<Accesses, Refusal> {
        let (mut all, mut others) = (Vec::new(), 0);
        let mut uneven = None;
        let mut used = 0u16;
        let mut collective = false;
        for (word, at) in code.words.iter().copied().zip((0u64..).step_by(BYTES)) {
            let opcode = word.opcode();
            if is_group_product(word) {
                return Err(Refusal::Unprotected { at, opcode });
            }
            if at > 0 && writes_stack(word) {
                let by = moves_stack(word, arch).ok_or(Refusal::StackPointer { at, opcode })?;
                if by % STACK_ALIGNMENT != 0 {
                    uneven = uneven.or(Some(at));
                }
            }
            if family(opcode) == Family::Control {
                used |= regions(word, arch).ok_or(Refusal::ControlFlow { at, opcode })?;
            }
            match word.base() {
                base::USETMAXREG => return Err(Refusal::RegistersChange { at }),
                base::WARPSYNC if is_collective(word) => collective = true,
                base::END_COLLECTIVE => collective = false,
                _ => {}
            }
            others += usize::from(is_other_access(word));
            if !Access::is_one(word) || Predicate::of(word.bits(12, 4)) == Predicate::NEVER {
                continue;
            }
            let form = Refusal::AccessForm { at, word: word.0 };
            all.push(Access::read(at, word).ok_or(form)?);
            if collective {
                return Err(Refusal::Collective { at });
            }
        }
        if all.is_empty() {
            return Err(Refusal::NoAccess);
        }
        let free = (0..16).rev().filter(|b| used & 1 << b == 0).collect();
        Ok(Accesses {
            all,
            others,
            free,
            uneven,
        })
    }
}

/// `WARPSYNC.COLLECTIVE`: what follows is run once for all lanes.
fn is_collective(word: Word) -> bool {
    word.bits(86, 1) != 0
}

fn writes_stack(word: Word) -> bool {
    WRITING.contains(&word.base()) && word.bits(16, 8) == 1
}

/// The number that is added to the stack pointer. `None`: it is written in another way.
fn moves_stack(word: Word, arch: Arch) -> Option<i32> {
    let adds = Insn::decode(word, arch).is_some_and(|insn| insn.op == Op::Add && insn.source == 1);
    let bare = word.with(12, 4, 0).with(32, 32, 0).with(16, 8, 0);
    let adds = adds || bare.with(105, 23, 0) == VIADD;
    adds.then(|| word.signed(32, 32))
}

/// The probe as it can stand where a kernel goes on behind it: everything in it can be waited for.
fn waited_for(probe: &Probe) -> Result<Probe, Refusal> {
    let counts = |word: &Word| word.base() == base::DEPBAR && word.bits(38, 6) != 0;
    let counted = probe.words.iter().filter(|word| counts(word));
    let counted = counted.fold(0u8, |all, word| all | 1 << word.bits(44, 3));
    let mut probe = probe.clone();
    for (index, word) in probe.words.iter_mut().enumerate() {
        let opcode = word.opcode();
        let refused = |why| Refusal::ProbeAtAccess { index, opcode, why };
        if is_uniform(*word) {
            return Err(refused("it uses registers that a warp has once"));
        }
        if word.base() == base::WARPSYNC {
            return Err(refused("it waits for other lanes"));
        }
        if word.base() == base::YIELD {
            *word = nothing(*word);
        }
        if !is_waited_for(*word) {
            // Reads of one kind are done in their order, so the compiler has only the last of them
            // tell.
            let free = free_of(counted).filter(|_| late(*word) != Late::Unknown);
            *word = match late(*word) {
                Late::Nothing => continue,
                _ => guarded(*word, free.ok_or(refused("nothing tells when it is done"))?),
            };
        }
    }
    Ok(probe)
}

/// What takes the place of a `YIELD`, behind which lanes would be apart: it lets others go first,
/// and none of a probe's lanes waits for another.
pub(crate) fn nothing(word: Word) -> Word {
    let control = word.control();
    let nop = Insn::new(Op::Nop, control).encode(Arch::Sm90);
    nop.unwrap_or(word)
}

impl Text {
    /// The access leads to a stub, which saves, calls, restores, does what was replaced and goes
    /// back. `region`: the convergence barrier in which the lanes meet behind the call.
    fn access(
        &mut self,
        hook: Hook<'_>,
        start: u64,
        access: &Access,
        region: u8,
    ) -> Result<(), Refusal> {
        let original = self.words[access.at as usize / BYTES];
        let stub = self.end();
        let there = Insn::new(Op::Bra, Control::jump().after(ALL_BARRIERS));
        self.words[access.at as usize / BYTES] = self.encode(there.leading(access.at, stub))?;

        self.settle()?;
        self.push(add(1, FRAME.wrapping_neg()))?;
        for (register, slot) in SAVED.into_iter().zip((0..).step_by(4)) {
            self.push(stored(register, slot))?;
        }
        self.settle()?;
        self.push(Insn {
            target: 0,
            ..Insn::new(Op::P2r, SETTLED)
        })?;
        self.push(stored(0, PREDICATES))?;
        self.settle()?;
        self.push(Insn {
            target: 0,
            ..Insn::new(Op::VoteAny, SETTLED)
        })?;
        self.push(stored(0, LANES))?;
        self.settle()?;

        let open = self.later();
        let skips = access.guard != Predicate::ALWAYS;
        let skip = skips.then(|| self.later());
        self.address(access)?;
        let returns = self.arguments(hook, access)?;
        let call = Insn::new(Op::CallRel, Control::jump().after(ALL_BARRIERS));
        self.push(call.leading(self.end(), start))?;

        let join = self.end();
        let behind = join + BYTES as u64;
        self.fill_in(open, |at| {
            let open = Insn {
                barrier: region,
                ..Insn::new(Op::Bssy, Control::stall(5).staying())
            };
            open.leading(at, behind)
        })?;
        if let Some(skip) = skip {
            self.fill_in(skip, |at| {
                let skip = Insn {
                    guard: access.guard.not(),
                    ..Insn::new(Op::Bra, Control::jump())
                };
                skip.leading(at, join)
            })?;
        }
        for (index, half) in [(returns, join as u32), (returns + 1, (join >> 32) as u32)] {
            let register = 20 + (index - returns) as u8;
            self.fill_in(index, |_| mov(register, half))?;
        }
        self.push(Insn {
            barrier: region,
            ..Insn::new(Op::Bsync, Control::jump())
        })?;

        self.settle()?;
        self.push(loaded(0, LANES))?;
        self.settle()?;
        self.push(Insn {
            source: 0,
            ..Insn::new(Op::WarpSync, Control::jump())
        })?;
        self.settle()?;
        self.push(loaded(0, PREDICATES))?;
        self.settle()?;
        self.push(Insn {
            source: 0,
            ..Insn::new(Op::R2p, SETTLED)
        })?;
        for (register, slot) in SAVED.into_iter().zip((0..).step_by(4)) {
            self.push(loaded(register, slot))?;
        }
        self.settle()?;
        self.push(add(1, FRAME))?;
        self.words.push(original);
        let back = Insn::new(Op::Bra, Control::jump());
        self.push(back.leading(self.end(), access.at + BYTES as u64))
    }

    /// Nothing is in flight behind this: neither what barriers tell of nor what takes a known time.
    fn settle(&mut self) -> Result<(), Refusal> {
        self.push(Insn::new(Op::Nop, SETTLED.after(ALL_BARRIERS)))
    }

    /// An instruction that is known later; gives its index.
    fn later(&mut self) -> usize {
        self.words.push(Word(0));
        self.words.len() - 1
    }

    fn fill_in(&mut self, index: usize, insn: impl Fn(u64) -> Insn) -> Result<(), Refusal> {
        self.words[index] = self.encode(insn((index * BYTES) as u64))?;
        Ok(())
    }

    /// The address of the access in R8 and R9, from what was saved or from registers that are as
    /// they were.
    fn address(&mut self, access: &Access) -> Result<(), Refusal> {
        for (half, target) in [(0, 8), (1, 9)] {
            let source = access.base + half;
            let slot = SAVED.iter().position(|register| *register == source);
            self.push(match slot {
                Some(slot) => loaded(target, 4 * slot as u32),
                None => Insn {
                    target,
                    source,
                    ..Insn::new(Op::MovReg, SETTLED)
                },
            })?;
        }
        self.settle()?;
        if access.offset != 0 {
            let sum = |op, target, number: i32| Insn {
                target,
                source: target,
                number: number as u32,
                ..Insn::new(op, SETTLED)
            };
            self.push(sum(Op::AddCarry, 8, access.offset))?;
            self.push(sum(Op::AddWithCarry, 9, access.offset >> 31))?;
        }
        Ok(())
    }

    /// All other arguments; gives the index of the two instructions that say where the probe comes
    /// back.
    fn arguments(&mut self, hook: Hook<'_>, access: &Access) -> Result<usize, Refusal> {
        let numbers = [
            (4, hook.userdata as u32),
            (5, (hook.userdata >> 32) as u32),
            (6, access.at as u32),
            (7, (access.at >> 32) as u32),
            (10, access.bytes),
            (11, access.flags()),
            (12, 0),
            (13, 0),
        ];
        self.userdata.push(self.words.len());
        for (register, number) in numbers {
            self.push(mov(register, number))?;
        }
        let returns = self.later();
        self.later();
        Ok(returns)
    }
}

fn mov(target: u8, number: u32) -> Insn {
    Insn {
        target,
        number,
        ..Insn::new(Op::MovImm, SETTLED)
    }
}

/// The register plus a number.
fn add(register: u8, number: u32) -> Insn {
    Insn {
        target: register,
        source: register,
        number,
        ..Insn::new(Op::Add, SETTLED)
    }
}

/// A barrier that is raised by one instruction can be waited for two cycles later.
fn stored(register: u8, slot: u32) -> Insn {
    let control = Control {
        read: OURS,
        ..Control::stall(2).staying()
    };
    Insn {
        source: register,
        number: slot,
        ..Insn::new(Op::Stl, control)
    }
}

fn loaded(register: u8, slot: u32) -> Insn {
    let control = Control {
        write: OURS,
        ..Control::stall(2).staying()
    };
    Insn {
        target: register,
        number: slot,
        ..Insn::new(Op::Ldl, control)
    }
}

//! A kernel's code as it grows: probes behind it, and stubs that call them.
//!
//! A stub at an end of the kernel sets the stack pointer to where a thread's stack begins, if
//! probes have a stack, which is right because no frame is alive at these places; it passes the
//! arguments, calls the probe or has it in itself ([`crate::inline`]), and goes on as the kernel
//! would have. Stubs at accesses are in [`crate::memory`].

use crate::arch::Arch;
use crate::elf::GRAIN;
use crate::error::Refusal;
use crate::hidden::{self, Launch};
use crate::inline;
use crate::kinds::kept_barrier;
use crate::probe::{FixKind, Hook, Probe};
use crate::table::Op;
use crate::word::{ALL_BARRIERS, BYTES, Control, Insn, NO_BARRIER, Word};

/// Cycles after which the result of a `MOV` can be read.
const MOV_LATENCY: u8 = 6;

/// The barrier that tells that what the stub loads is there.
const LOADED: u8 = 0;

/// Instructions of 15 cycles at an exit of a kernel with matrix products.
const SETTLING: usize = 3;

/// How a stub comes to a probe.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way<'p> {
    /// It calls what stands there.
    Call(u64),
    /// It has it in itself.
    Here(&'p [Word]),
}

/// The same instruction behind these barriers, too.
fn waiting(word: Word, barriers: u8) -> Word {
    let control = word.control();
    word.with_control(control.after(control.wait | barriers))
}

/// The kernel's code as it grows.
pub(crate) struct Text {
    pub(crate) arch: Arch,
    pub(crate) words: Vec<Word>,
    /// The launch arguments of probes, and where in bank 0 they are.
    pub(crate) launch: Launch,
    pub(crate) launch_at: u32,
    /// A probe has a stack.
    pub(crate) stack: bool,
    /// There are matrix products, which write registers long after they were issued, with nothing
    /// to wait for: at an exit they may still do.
    pub(crate) settles: bool,
    /// Where the first argument of probes is set: its low half, and its high half in the next
    /// instruction.
    pub(crate) userdata: Vec<usize>,
}

impl Text {
    pub(crate) fn end(&self) -> u64 {
        (self.words.len() * BYTES) as u64
    }

    pub(crate) fn change(&mut self, at: u64, to: impl Fn(Word) -> Word) {
        let word = &mut self.words[at as usize / BYTES];
        *word = to(*word);
    }

    pub(crate) fn encode(&self, insn: Insn) -> Result<Word, Refusal> {
        // All that is made here is in the table, and no kernel is as long as a distance can be.
        insn.encode(self.arch).ok_or(Refusal::ControlFlow {
            at: self.end(),
            opcode: 0,
        })
    }

    /// Where the first argument is set in what stands behind the kernel's own instructions.
    pub(crate) fn userdata_behind(&self, own: usize) -> Vec<usize> {
        self.userdata.iter().map(|at| at - own).collect()
    }

    pub(crate) fn push(&mut self, insn: Insn) -> Result<(), Refusal> {
        let word = self.encode(insn)?;
        self.words.push(word);
        Ok(())
    }

    /// Adds the code of the probes that are called, each where it is needed once; gives how each is
    /// come to. `exits`: how many there are.
    pub(crate) fn add_probes<'p>(
        &mut self,
        hooks: [Option<Hook<'p>>; 2],
        exits: usize,
    ) -> Result<[Option<Way<'p>>; 2], Refusal> {
        let mut ways = [None; 2];
        for (index, hook) in hooks.iter().enumerate() {
            let Some(hook) = hook else { continue };
            let at_exit = index == 1;
            let copies = if at_exit { exits } else { 1 };
            if let Some(body) = inline::body(hook.probe, copies) {
                ways[index] = Some(Way::Here(body));
                continue;
            }
            // At an exit other lanes of the warp may be anywhere in the kernel, so that copy
            // differs if it has regions.
            if at_exit
                && hook.probe.barriers == 0
                && hooks[0].is_some_and(|h| h.probe == hook.probe)
                && matches!(ways[0], Some(Way::Call(_)))
            {
                ways[1] = ways[0];
                continue;
            }
            let region = |barrier: u8| (!at_exit).then_some(barrier);
            ways[index] = Some(Way::Call(self.add_probe(hook.probe, region)?));
        }
        Ok(ways)
    }

    /// Adds the code of a probe; `region` says which convergence barrier each of its own becomes,
    /// and `None` that it has no such region.
    pub(crate) fn add_probe(
        &mut self,
        probe: &Probe,
        region: impl Fn(u8) -> Option<u8>,
    ) -> Result<u64, Refusal> {
        let start = self.end();
        for word in &probe.words {
            let word = self.in_region(*word, &region)?;
            self.words.push(word);
        }
        for fix in &probe.fixes {
            let at = start + (fix.index * BYTES) as u64;
            let index = at as usize / BYTES;
            let old = self.words[index];
            let fixed = match fix.kind {
                // Addresses are relative to the kernel, whose code begins at 0.
                FixKind::Low(offset) => old.with(32, 32, u128::from(start + offset)),
                FixKind::High => old.with(32, 32, 0),
                FixKind::Call(offset) => {
                    let call = Insn::new(Op::CallRel, old.control());
                    let word = self.encode(call.leading(at, start + offset))?;
                    word.with(12, 4, old.bits(12, 4))
                }
                FixKind::Return => {
                    let back = Insn::decode(old, self.arch).filter(|i| i.op == Op::RetAbs);
                    let back = back.ok_or(Refusal::ControlFlow {
                        at,
                        opcode: old.opcode(),
                    })?;
                    let back = Insn {
                        op: Op::RetRel,
                        ..back
                    };
                    self.encode(back.leading(at, 0))?
                }
            };
            self.words[index] = fixed;
        }
        Ok(start)
    }

    /// An instruction of a probe whose convergence barriers are others, or which has no regions.
    /// The kernel's own regions are open where a thread ends, and in the same barriers: lanes would
    /// wait for lanes that never come. Without regions the lanes of a group just go on one after
    /// the other.
    fn in_region(&self, word: Word, region: impl Fn(u8) -> Option<u8>) -> Result<Word, Refusal> {
        if let Some(kept) = kept_barrier(word) {
            // Where it has no regions there is nothing to keep, and nothing is to tell that it was
            // kept.
            return match region(kept) {
                Some(barrier) => Ok(word.with(24, 8, barrier.into())),
                None => self.encode(Insn::new(
                    Op::Nop,
                    Control {
                        write: NO_BARRIER,
                        read: NO_BARRIER,
                        ..word.control()
                    },
                )),
            };
        }
        let insn = Insn::decode(word, self.arch);
        let parts = insn.filter(|i| matches!(i.op, Op::Bssy | Op::Bsync | Op::Break));
        match parts.map(|i| (i, region(i.barrier))) {
            Some((insn, Some(barrier))) => self.encode(Insn { barrier, ..insn }),
            Some((insn, None)) => self.encode(Insn::new(Op::Nop, insn.control)),
            None => Ok(word),
        }
    }

    /// Has a probe run; where it goes on is behind what this adds. `wait`: barriers that must be
    /// down first.
    fn run(
        &mut self,
        hook: Hook<'_>,
        way: Way<'_>,
        at: u64,
        wait: u8,
        at_exit: bool,
    ) -> Result<(), Refusal> {
        let begin = self.words.len();
        let soon = Control::stall(1).staying();
        if at_exit && self.settles {
            for _ in 0..SETTLING {
                self.push(Insn::new(Op::Nop, Control::stall(15)))?;
            }
        }
        let loading = Control {
            write: LOADED,
            ..soon
        };
        // A probe without a stack does not look at the pointer, and its load takes as long as all
        // the rest.
        if self.stack {
            let stack = Insn {
                target: 1,
                number: self.arch.stack_pointer(),
                ..match self.arch {
                    Arch::Sm80 => Insn::new(Op::MovConst, soon),
                    Arch::Sm90 => Insn::new(Op::Ldc, loading),
                }
            };
            self.push(stack)?;
        }
        let words = match at_exit {
            true => self.launch.exit,
            false => self.launch.entry,
        };
        for (target, offset) in hidden::given(words) {
            let number = self.launch_at + offset;
            let half = |op, control, half: u8| Insn {
                target: target + half,
                number: number + 4 * u32::from(half),
                ..Insn::new(op, control)
            };
            match self.arch {
                Arch::Sm80 => {
                    self.push(half(Op::MovConst, soon, 0))?;
                    self.push(half(Op::MovConst, soon, 1))?;
                }
                Arch::Sm90 => self.push(half(Op::LdcPair, loading, 0))?,
            }
        }
        // Lanes that the probe parts are together again behind it, in a barrier that it does not
        // use.
        let free = |barrier: &u8| hook.probe.barriers & 1 << barrier == 0;
        let region = match !at_exit && hook.probe.branches {
            true => Some(
                (6..16)
                    .find(free)
                    .ok_or(Refusal::NoRegion { needed: 1, free: 0 })?,
            ),
            false => None,
        };
        let mut arguments = vec![
            (4, hook.userdata as u32),
            (5, (hook.userdata >> 32) as u32),
            (6, at as u32),
            (7, (at >> 32) as u32),
        ];
        // From here on: the arguments, the region's beginning, the probe or a call.
        let (more, length) = match way {
            Way::Call(_) => (2, 1),
            Way::Here(body) => (0, body.len()),
        };
        let before = arguments.len() + more + usize::from(region.is_some());
        let back = self.end() + ((before + length) * BYTES) as u64;
        if let Way::Call(_) = way {
            arguments.extend([(20, back as u32), (21, (back >> 32) as u32)]);
        }
        let last = arguments.last().map(|(register, _)| *register);
        self.userdata.push(self.words.len());
        for (register, number) in arguments {
            let control = match last == Some(register) {
                true => Control::stall(MOV_LATENCY),
                false => soon,
            };
            self.push(Insn {
                target: register,
                number,
                ..Insn::new(Op::MovImm, control)
            })?;
        }
        if let Some(barrier) = region {
            let open = Insn {
                barrier,
                ..Insn::new(Op::Bssy, Control::stall(3).staying())
            };
            // It names what follows the end of the region.
            self.push(open.leading(self.end(), back + BYTES as u64))?;
        }
        match way {
            Way::Call(start) => {
                let call = Insn::new(Op::CallRel, Control::jump().after(ALL_BARRIERS));
                self.push(call.leading(self.end(), start))?;
            }
            Way::Here(body) => self.add_body(body, at_exit, words != 0)?,
        }
        if wait != 0 {
            self.change((begin * BYTES) as u64, |word| waiting(word, wait));
        }
        if let Some(barrier) = region {
            self.push(Insn {
                barrier,
                ..Insn::new(Op::Bsync, Control::jump())
            })?;
            // A region lets go of lanes when others in it yield, as in loops of compare-and-swap;
            // and the kernel may have been compiled for lanes that begin together: shuffles and
            // uniform registers would be wrong.
            self.push(Insn {
                number: self.arch.all_lanes(),
                ..Insn::new(Op::WarpSyncAll, Control::jump())
            })?;
        }
        Ok(())
    }

    /// Adds a probe where it runs. Its first instruction waits for what the stub loads: the stack
    /// pointer, and the launch arguments.
    fn add_body(&mut self, body: &[Word], at_exit: bool, has_args: bool) -> Result<(), Refusal> {
        let start = self.end();
        let end = start + (body.len() * BYTES) as u64;
        for (index, word) in body.iter().enumerate() {
            let at = start + (index * BYTES) as u64;
            let word = match inline::back(*word, at, end, self.arch) {
                Some(back) => self.encode(back)?,
                None => self.in_region(*word, |barrier| (!at_exit).then_some(barrier))?,
            };
            self.words.push(word);
        }
        if (self.stack || has_args) && self.arch == Arch::Sm90 {
            self.change(start, |word| waiting(word, 1 << LOADED));
        }
        Ok(())
    }

    /// The first instruction leads to a stub, which runs the probe and does what was replaced.
    pub(crate) fn entry(
        &mut self,
        hook: Hook<'_>,
        way: Way<'_>,
        first: Word,
    ) -> Result<(), Refusal> {
        let stub = self.end();
        self.run(hook, way, 0, 0, false)?;
        self.words.push(first);
        let back = Insn::new(Op::Bra, Control::jump());
        self.push(back.leading(self.end(), BYTES as u64))?;
        let there = Insn::new(Op::Bra, Control::jump()).leading(0, stub);
        self.words[0] = self.encode(there)?;
        Ok(())
    }

    /// The exit at `at` leads to a stub, which runs the probe and ends the thread; gives where.
    pub(crate) fn exit(&mut self, hook: Hook<'_>, way: Way<'_>, at: u64) -> Result<u64, Refusal> {
        let old = self.words[at as usize / BYTES];
        let stub = self.end();
        self.run(hook, way, at, ALL_BARRIERS, true)?;
        let exit = self.end();
        self.push(Insn::new(Op::Exit, Control::jump()))?;
        // Guard, second predicate and the barriers that these wait for are those of the exit.
        let insn = Insn::decode(old, self.arch).ok_or(Refusal::ExitForm { at, word: old.0 })?;
        let there = Insn {
            op: Op::Bra,
            ..insn
        };
        let there = self.encode(there.leading(at, stub))?;
        self.words[at as usize / BYTES] = there;
        debug_assert_eq!(there.control().read, NO_BARRIER);
        Ok(exit)
    }

    pub(crate) fn fill(&mut self) {
        let nop = Insn::new(Op::Nop, Control::stall(0));
        let filler = nop.encode(self.arch).unwrap_or(Word(0));
        while !self.end().is_multiple_of(GRAIN) {
            self.words.push(filler);
        }
    }
}

//! The reference interpreter: the meaning of a program, written to be read.
//!
//! Everything that the guest does wrong is a value ([`Outcome::Trap`]), so that differential tests
//! can compare traps too. It trusts no verifier: unchecked code runs just as safely, only it may
//! trap.
//!
//! Memory, maps and helpers come from a [`Machine`]. The stack of each call is 512 bytes with a gap
//! to the next, so that an access outside a frame traps instead of meeting its caller's data.
//! Semantics: RFC 9669; `may_goto` counts per frame as in Linux.

use crate::alu;
use crate::insn::{AtomicOp, Callee, Code, Imm64, Insn, Pc, Reg, Source, Width};
use crate::iterators::kfunc;
use crate::memory::{FlatMemory, Memory, Region};

pub use crate::trap::{MAX_FRAMES, Trap, TrapKind};

/// Bytes of stack that a function has below `r10`.
pub const STACK_BYTES: u64 = 512;
/// Address of the frame pointer of the entry function.
pub const STACK_TOP: u64 = 0x7000_0000_0000;
/// Distance between the frame pointers of a caller and its callee.
const FRAME_STRIDE: u64 = 0x1000;
/// Value of a function address (`lddw` of kind 4): this plus the [`Pc`].
const FUNCTION_BASE: u64 = 0x7f00_0000_0000;

/// The stack of a program in the layout that [`run`] expects of its [`Machine`].
pub fn stack_regions() -> impl Iterator<Item = Region> {
    (0..MAX_FRAMES).map(|depth| Region {
        base: frame_pointer(depth) - STACK_BYTES,
        bytes: vec![0; STACK_BYTES as usize],
        writable: true,
    })
}

fn frame_pointer(depth: u32) -> u64 {
    STACK_TOP - u64::from(depth) * FRAME_STRIDE
}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// `exit` of the entry function, with `r0`.
    Return(u64),
    /// The program did something that it may not do.
    Trap(Trap),
}

/// A run that could not start. The caller is at fault.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    /// No such instruction.
    #[error("entry {entry} is not in the program of {len} instructions")]
    NoEntry {
        /// What was asked for.
        entry: Pc,
        /// Length of the program.
        len: usize,
    },
    /// More than five arguments.
    #[error("{count} arguments were given, a program takes at most 5")]
    TooManyArguments {
        /// How many.
        count: usize,
    },
}

/// Bounds of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most instructions executed, over all calls and callbacks.
    pub fuel: u64,
    /// How often `may_goto` falls through in one frame.
    pub may_goto: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        // Linux: BPF_MAX_LOOPS.
        Limits {
            fuel: 1 << 24,
            may_goto: 8 << 20,
        }
    }
}

/// The world around a program. [`Memory`] must hold [`stack_regions`].
pub trait Machine: Memory {
    /// Calls helper `id` with `r1` to `r5`; the result goes to `r0`. `callback` runs local
    /// functions for helpers such as `bpf_loop`.
    ///
    /// # Errors
    /// The trap.
    fn call_helper(
        &mut self,
        id: u32,
        args: [u64; 5],
        callback: &mut Callback<'_>,
    ) -> Result<u64, TrapKind>;

    /// What `lddw` of map `map` loads.
    ///
    /// # Errors
    /// The trap.
    fn map_address(&mut self, map: u32) -> Result<u64, TrapKind> {
        Err(TrapKind::NoMap { map })
    }

    /// Address of byte `offset` of the first value of `map`.
    ///
    /// # Errors
    /// The trap.
    fn map_value_address(&mut self, map: u32, offset: u32) -> Result<u64, TrapKind> {
        let _ = offset;
        Err(TrapKind::NoMap { map })
    }

    /// `callx` with register value `value`.
    ///
    /// # Errors
    /// The trap; by default always.
    fn call_register(
        &mut self,
        value: u64,
        args: [u64; 5],
        callback: &mut Callback<'_>,
    ) -> Result<u64, TrapKind> {
        let _ = (args, callback);
        Err(TrapKind::IndirectCall { value })
    }
}

/// What is left of the limits, and how deep the calls are. Helpers run callbacks through it.
pub struct Callback<'a> {
    code: &'a Code,
    limits: Limits,
    fuel: u64,
    depth: u32,
    /// Where in a callback a trap came from: more exact than the helper call.
    trapped_at: Option<Pc>,
}

impl Callback<'_> {
    /// Runs the local function whose address a program passed as `function` with `r1` to `r5`;
    /// returns its `r0`.
    ///
    /// # Errors
    /// The trap that ended it, or [`TrapKind::NotAFunction`].
    pub fn call<M: Machine + ?Sized>(
        &mut self,
        machine: &mut M,
        function: u64,
        args: [u64; 5],
    ) -> Result<u64, TrapKind> {
        let pc = function
            .checked_sub(FUNCTION_BASE)
            .filter(|pc| *pc < self.code.insns().len() as u64);
        let pc = Pc(pc.ok_or(TrapKind::NotAFunction { value: function })? as u32);
        if self.depth + 1 >= MAX_FRAMES {
            return Err(TrapKind::CallDepth);
        }
        self.depth += 1;
        let result = execute(self, machine, pc, &args);
        self.depth -= 1;
        result.map_err(|trap| {
            self.trapped_at = Some(trap.pc);
            trap.kind
        })
    }
}

/// Runs `code` from `entry` with up to five arguments in `r1` and up.
///
/// # Errors
/// [`RunError`] if the run cannot start. What the program does wrong is [`Outcome::Trap`].
pub fn run<M: Machine + ?Sized>(
    code: &Code,
    entry: Pc,
    args: &[u64],
    machine: &mut M,
    limits: Limits,
) -> Result<Outcome, RunError> {
    let len = code.insns().len();
    if entry.index() >= len {
        return Err(RunError::NoEntry { entry, len });
    }
    if args.len() > 5 {
        return Err(RunError::TooManyArguments { count: args.len() });
    }
    let mut state = Callback {
        code,
        limits,
        fuel: limits.fuel,
        depth: 0,
        trapped_at: None,
    };
    Ok(match execute(&mut state, machine, entry, args) {
        Ok(value) => Outcome::Return(value),
        Err(trap) => Outcome::Trap(trap),
    })
}

/// What a local call keeps of its caller.
struct Frame {
    resume: Pc,
    /// `r6` to `r9`.
    saved: [u64; 4],
    may_goto: u64,
}

/// Runs one function and all that it calls. `state.depth` is that of its frame, on return as on
/// entry.
fn execute<M: Machine + ?Sized>(
    state: &mut Callback<'_>,
    machine: &mut M,
    entry: Pc,
    args: &[u64],
) -> Result<u64, Trap> {
    let base_depth = state.depth;
    let mut cpu = Cpu {
        regs: [0; Reg::COUNT],
        pc: entry,
        frames: Vec::new(),
        may_goto: state.limits.may_goto,
    };
    cpu.regs[1..=args.len()].copy_from_slice(args);
    cpu.regs[Reg::FP.index()] = frame_pointer(base_depth);
    let result = loop {
        let pc = cpu.pc;
        match cpu.step(state, machine) {
            Ok(Step::Continue) => {}
            Ok(Step::Return(value)) => break Ok(value),
            Err(kind) => {
                break Err(Trap {
                    pc: state.trapped_at.take().unwrap_or(pc),
                    kind,
                });
            }
        }
    };
    state.depth = base_depth;
    result
}

struct Cpu {
    regs: [u64; Reg::COUNT],
    pc: Pc,
    frames: Vec<Frame>,
    /// How often `may_goto` may still fall through in this frame.
    may_goto: u64,
}

enum Step {
    Continue,
    Return(u64),
}

impl Cpu {
    fn get(&self, reg: Reg) -> u64 {
        self.regs[reg.index()]
    }

    fn set(&mut self, reg: Reg, value: u64) -> Result<(), TrapKind> {
        if reg == Reg::FP {
            return Err(TrapKind::FramePointer);
        }
        self.regs[reg.index()] = value;
        Ok(())
    }

    fn source(&self, source: Source) -> u64 {
        match source {
            Source::Reg(reg) => self.get(reg),
            Source::Imm(imm) => imm as i64 as u64,
        }
    }

    fn address(&self, base: Reg, off: i16) -> u64 {
        self.get(base).wrapping_add(off as i64 as u64)
    }

    fn args(&self) -> [u64; 5] {
        [
            self.regs[1],
            self.regs[2],
            self.regs[3],
            self.regs[4],
            self.regs[5],
        ]
    }

    fn step<M: Machine + ?Sized>(
        &mut self,
        state: &mut Callback<'_>,
        machine: &mut M,
    ) -> Result<Step, TrapKind> {
        let Some(insn) = state.code.insns().get(self.pc.index()) else {
            return Err(TrapKind::PastEnd);
        };
        state.fuel = state.fuel.checked_sub(1).ok_or(TrapKind::OutOfFuel)?;
        let mut next = self.pc.next();
        match *insn {
            Insn::Alu { wide, op, dst, src } => {
                self.set(dst, alu::alu(wide, op, self.get(dst), self.source(src)))?
            }
            Insn::MovSx {
                wide,
                bits,
                dst,
                src,
            } => self.set(dst, alu::sign_extend(wide, bits, self.get(src)))?,
            Insn::Neg { wide, dst } => self.set(dst, alu::neg(wide, self.get(dst)))?,
            Insn::End { kind, bits, dst } => self.set(dst, alu::end(kind, bits, self.get(dst)))?,
            Insn::LoadImm64 { dst, value } => {
                let value = match value {
                    Imm64::Value(value) => value,
                    Imm64::Map(map) => machine.map_address(map)?,
                    Imm64::MapValue { map, offset } => machine.map_value_address(map, offset)?,
                    Imm64::BtfId(id) => return Err(TrapKind::NoVariable { id }),
                    Imm64::Func(pc) => FUNCTION_BASE + u64::from(pc.0),
                };
                self.set(dst, value)?;
            }
            Insn::Load {
                width,
                signed,
                dst,
                base,
                off,
            } => {
                let value = machine.load(self.address(base, off), width)?;
                let value = if signed {
                    alu::sign_extend(true, width.bits() as u8, value)
                } else {
                    value
                };
                self.set(dst, value)?;
            }
            Insn::Store {
                width,
                base,
                off,
                src,
            } => {
                machine.store(self.address(base, off), width, self.source(src))?;
            }
            Insn::Atomic {
                width,
                op,
                base,
                off,
                src,
            } => self.atomic(machine, width, op, self.address(base, off), src)?,
            // One lane at a time: acquire and release order nothing here.
            Insn::LoadAcquire {
                width,
                dst,
                base,
                off,
            } => {
                let value = machine.load(self.address(base, off), width)?;
                self.set(dst, value)?;
            }
            Insn::StoreRelease {
                width,
                base,
                off,
                src,
            } => {
                machine.store(self.address(base, off), width, self.get(src))?;
            }
            Insn::Jump {
                wide,
                op,
                dst,
                src,
                target,
            } => {
                if alu::compare(wide, op, self.get(dst), self.source(src)) {
                    next = target;
                }
            }
            Insn::Goto { target, long: _ } => next = target,
            Insn::MayGoto { target } => match self.may_goto.checked_sub(1) {
                Some(left) => self.may_goto = left,
                None => next = target,
            },
            Insn::Call {
                callee: Callee::Helper(id),
            } => {
                self.regs[0] = machine.call_helper(id, self.args(), state)?;
                // A helper may go on after a callback trapped; then this is not where a later trap
                // comes from.
                state.trapped_at = None;
            }
            Insn::Call {
                callee: Callee::Local(target),
            } => {
                self.push_frame(state, next)?;
                next = target;
            }
            Insn::Call {
                callee: Callee::Kfunc(id),
            } => self.regs[0] = kfunc(machine, id, self.args())?,
            Insn::CallReg { target } => {
                self.regs[0] = machine.call_register(self.get(target), self.args(), state)?;
                state.trapped_at = None;
            }
            Insn::Exit => match self.frames.pop() {
                Some(frame) => {
                    state.depth -= 1;
                    self.regs[6..10].copy_from_slice(&frame.saved);
                    self.regs[Reg::FP.index()] = frame_pointer(state.depth);
                    self.may_goto = frame.may_goto;
                    next = frame.resume;
                }
                None => return Ok(Step::Return(self.regs[0])),
            },
            Insn::LegacyPacket { .. } => return Err(TrapKind::LegacyPacket),
        }
        self.pc = next;
        Ok(Step::Continue)
    }

    fn push_frame(&mut self, state: &mut Callback<'_>, resume: Pc) -> Result<(), TrapKind> {
        if state.depth + 1 >= MAX_FRAMES {
            return Err(TrapKind::CallDepth);
        }
        let saved = [self.regs[6], self.regs[7], self.regs[8], self.regs[9]];
        self.frames.push(Frame {
            resume,
            saved,
            may_goto: self.may_goto,
        });
        state.depth += 1;
        self.may_goto = state.limits.may_goto;
        self.regs[Reg::FP.index()] = frame_pointer(state.depth);
        Ok(())
    }

    fn atomic<M: Machine + ?Sized>(
        &mut self,
        machine: &mut M,
        width: Width,
        op: AtomicOp,
        address: u64,
        src: Reg,
    ) -> Result<(), TrapKind> {
        let old = machine.atomic(address, width, op, self.get(src), self.regs[0])?;
        match op {
            AtomicOp::Add { fetch: false }
            | AtomicOp::Or { fetch: false }
            | AtomicOp::And { fetch: false }
            | AtomicOp::Xor { fetch: false } => Ok(()),
            AtomicOp::Add { fetch: true }
            | AtomicOp::Or { fetch: true }
            | AtomicOp::And { fetch: true }
            | AtomicOp::Xor { fetch: true }
            | AtomicOp::Xchg => self.set(src, old),
            AtomicOp::CmpXchg => {
                self.regs[0] = old;
                Ok(())
            }
        }
    }
}

/// A machine with memory and nothing else: no helpers, no maps.
impl Machine for FlatMemory {
    fn call_helper(
        &mut self,
        id: u32,
        _args: [u64; 5],
        _callback: &mut Callback<'_>,
    ) -> Result<u64, TrapKind> {
        Err(TrapKind::NoHelper { id })
    }
}

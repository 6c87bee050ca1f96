//! Which registers are still read, and whose value steers the program, at each instruction.
//!
//! The explorer drops what is not read and forgets numbers that steer nothing before it compares
//! states: two paths that differ only in such values are then the same path. Both are sound,
//! because knowing less always is.

use std::ops::Range;

use warpbpf_abi::helpers::Arg;
use warpbpf_abi::kfuncs::KfuncId;
use warpbpf_ebpf::{AluOp, AtomicOp, Callee, Code, Insn, Pc, Reg, Source};
use warpbpf_flow::{Analysis, Cfg, Direction, solve};

use crate::defines::fetched;
use crate::platform::Platform;

/// Sets of registers, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Needed {
    /// Registers that may still be read.
    pub live: u16,
    /// Registers whose value may decide a branch, an address, or an argument.
    pub steers: u16,
}

impl Needed {
    const ALL: Needed = Needed {
        live: 0x7ff,
        steers: 0x7ff,
    };

    fn read(&mut self, reg: Reg, steers: bool) {
        self.live |= 1 << reg.index();
        if steers {
            self.steers |= 1 << reg.index();
        }
    }

    fn write(&mut self, reg: Reg) {
        self.live &= !(1 << reg.index());
        self.steers &= !(1 << reg.index());
    }

    /// The register may still be read.
    pub fn is_live(self, reg: Reg) -> bool {
        self.live >> reg.index() & 1 != 0
    }

    /// The register's value may steer the program.
    pub fn is_steering(self, reg: Reg) -> bool {
        self.steers >> reg.index() & 1 != 0
    }
}

/// What is needed before each instruction of a function, and where its paths meet.
#[derive(Clone, Debug)]
pub struct FunctionFlow {
    /// By instruction, from the function's start.
    pub needed: Vec<Needed>,
    /// More than one edge leads to the instruction.
    pub joins: Vec<bool>,
    /// A loop may come back to the instruction: each loop has one such, at least.
    pub heads: Vec<bool>,
}

/// Analyses the function in `range`. `is_entry`: nobody looks at its result.
pub fn analyse(
    code: &Code,
    range: &Range<u32>,
    is_entry: bool,
    platform: &Platform,
) -> FunctionFlow {
    let len = range.len();
    let mut edges = Vec::new();
    for i in 0..len {
        for target in successors(code, Pc(range.start + i as u32)) {
            if range.contains(&target.0) {
                edges.push((i, (target.0 - range.start) as usize));
            }
        }
    }
    let cfg = Cfg::new(len, 0, edges);
    let solution = solve(
        &cfg,
        &Liveness {
            code,
            start: range.start,
            is_entry,
            platform,
        },
    );
    // Control also enters at the start.
    let joins = (0..len)
        .map(|i| cfg.preds(i).len() + usize::from(i == 0) > 1)
        .collect();
    FunctionFlow {
        needed: solution.before,
        heads: heads(code, range),
        joins,
    }
}

/// Targets of edges that lead back to an instruction that a walk from the start is still in.
fn heads(code: &Code, range: &Range<u32>) -> Vec<bool> {
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Walk {
        NotYet,
        Inside,
        Done,
    }
    let mut heads = vec![false; range.len()];
    let mut walk = vec![Walk::NotYet; range.len()];
    let mut stack: Vec<(usize, Vec<Pc>)> = Vec::new();
    let mut next = Some(0);
    loop {
        if let Some(at) = next.take() {
            walk[at] = Walk::Inside;
            stack.push((at, successors(code, Pc(range.start + at as u32))));
        }
        let Some((at, targets)) = stack.last_mut() else {
            break;
        };
        let Some(target) = targets.pop() else {
            walk[*at] = Walk::Done;
            stack.pop();
            continue;
        };
        if !range.contains(&target.0) {
            continue;
        }
        let to = (target.0 - range.start) as usize;
        match walk[to] {
            Walk::NotYet => next = Some(to),
            Walk::Inside => heads[to] = true,
            Walk::Done => {}
        }
    }
    heads
}

/// Where control can go inside the function.
pub fn successors(code: &Code, pc: Pc) -> Vec<Pc> {
    match code.at(pc) {
        Insn::Jump { target, .. } | Insn::MayGoto { target } => vec![pc.next(), *target],
        Insn::Goto { target, .. } => vec![*target],
        Insn::Exit => vec![],
        Insn::Alu { .. }
        | Insn::MovSx { .. }
        | Insn::Neg { .. }
        | Insn::End { .. }
        | Insn::LoadImm64 { .. }
        | Insn::Load { .. }
        | Insn::Store { .. }
        | Insn::Atomic { .. }
        | Insn::LoadAcquire { .. }
        | Insn::StoreRelease { .. }
        | Insn::Call { .. }
        | Insn::CallReg { .. }
        | Insn::LegacyPacket { .. } => vec![pc.next()],
    }
}

struct Liveness<'a> {
    code: &'a Code,
    start: u32,
    is_entry: bool,
    platform: &'a Platform,
}

impl Analysis<usize> for Liveness<'_> {
    type Fact = Needed;
    const DIRECTION: Direction = Direction::Backward;

    fn bottom(&self) -> Needed {
        Needed::default()
    }

    fn boundary(&self) -> Needed {
        Needed::default()
    }

    fn join(&self, into: &mut Needed, from: &Needed) -> bool {
        let old = *into;
        into.live |= from.live;
        into.steers |= from.steers;
        *into != old
    }

    fn transfer(&self, block: usize, fact: &mut Needed) {
        let read_source = |fact: &mut Needed, src: &Source, steers: bool| {
            if let Source::Reg(src) = src {
                fact.read(*src, steers);
            }
        };
        match self.code.at(Pc(self.start + block as u32)) {
            Insn::Alu { op, dst, src, .. } => {
                let steers = fact.is_steering(*dst);
                fact.write(*dst);
                if *op != AluOp::Mov {
                    fact.read(*dst, steers);
                }
                read_source(fact, src, steers);
            }
            Insn::MovSx { dst, src, .. } => {
                let steers = fact.is_steering(*dst);
                fact.write(*dst);
                fact.read(*src, steers);
            }
            Insn::Neg { dst, .. } | Insn::End { dst, .. } => {
                let steers = fact.is_steering(*dst);
                fact.read(*dst, steers);
            }
            Insn::LoadImm64 { dst, .. } => fact.write(*dst),
            Insn::Load { dst, base, .. } | Insn::LoadAcquire { dst, base, .. } => {
                fact.write(*dst);
                fact.read(*base, true);
            }
            // What is stored may be loaded again, and steer then.
            Insn::Store { base, src, .. } => {
                fact.read(*base, true);
                read_source(fact, src, true);
            }
            Insn::StoreRelease { base, src, .. } => {
                fact.read(*base, true);
                fact.read(*src, true);
            }
            Insn::Atomic { op, base, src, .. } => {
                if let Some(reg) = fetched(*op, *src) {
                    fact.write(reg);
                }
                // Of what it leaves in memory nothing is known, on a stack either, whatever the
                // numbers were.
                if *op == AtomicOp::CmpXchg {
                    fact.read(Reg::R0, false);
                }
                fact.read(*base, true);
                fact.read(*src, false);
            }
            Insn::Jump { dst, src, .. } => {
                fact.read(*dst, true);
                read_source(fact, src, true);
            }
            Insn::Call { callee } => {
                let args = match callee {
                    Callee::Helper(id) => self.platform.helper(*id).map(|h| h.args),
                    Callee::Local(_) => None,
                    Callee::Kfunc(number) => {
                        let used = match KfuncId::from_number(*number) {
                            Some(KfuncId::IterNumNew) => 3,
                            Some(KfuncId::IterNumNext | KfuncId::IterNumDestroy) => 1,
                            None => 0,
                        };
                        let arg = |i| if i < used { Arg::Scalar } else { Arg::None };
                        Some(std::array::from_fn(arg))
                    }
                };
                for reg in Reg::all().take(6) {
                    fact.write(reg);
                }
                for (i, reg) in Reg::all().skip(1).take(5).enumerate() {
                    if args.is_none_or(|args| args[i] != Arg::None) {
                        fact.read(reg, true);
                    }
                }
            }
            Insn::Exit => fact.read(Reg::R0, !self.is_entry),
            Insn::Goto { .. } | Insn::MayGoto { .. } => {}
            // The explorer refuses these.
            Insn::CallReg { .. } | Insn::LegacyPacket { .. } => *fact = Needed::ALL,
        }
    }
}

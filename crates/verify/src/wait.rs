//! Loops that wait for another thread, and locks: given a name of their own.
//!
//! The explorer refuses every loop that has no bound, whatever it is for. On a GPU one kind
//! deserves more than "may not end": a loop that ends only when memory changes which another thread
//! must write. Lanes of a warp need not run at the same time, and a block that is waited for may
//! not have been started, so there is no number of rounds that helps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use warpbpf_abi::helpers::{HelperId, by_id};
use warpbpf_ebpf::{AluOp, AtomicOp, Callee, Code, Insn, Pc, Reg, Source};
use warpbpf_flow::{Cfg, DomTree, Loop, Loops};

use crate::broken::Broken;
use crate::defines::defines;
use crate::env::Env;
use crate::liveness::successors;
use crate::rule::Rule;

/// `bpf_spin_lock` and `bpf_spin_unlock` of Linux.
const LOCK_HELPERS: [u32; 2] = [93, 94];

/// Names what the program waits for, where a general rule was broken by a wait.
pub(crate) fn named(
    env: &Env<'_>,
    functions: &[Range<u32>],
    mut broken: Box<Broken>,
) -> Box<Broken> {
    match &broken.rule {
        Rule::LinuxHelper { id, name, .. } if LOCK_HELPERS.contains(id) => {
            broken.rule = Rule::Lock {
                what: format!("`bpf_{name}` is not served"),
            };
        }
        Rule::MayNotEnd | Rule::LoopBudget { .. } | Rule::TooComplex { .. } => {
            if let Some((whom, what, pc)) = spin(env.code, functions, broken.pc) {
                broken.rule = Rule::Spin { whom, what };
                broken.pc = pc;
            }
        }
        _ => {}
    }
    broken
}

/// What can end a loop.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    Memory(Pc),
    Lookup(Pc),
    Clock(Pc),
    /// The program's own values: it counts.
    Own,
}

/// The loop around `pc`, if only another thread or the clock can end it: whom it waits for, what it
/// looks at, where.
pub(crate) fn spin(
    code: &Code,
    functions: &[Range<u32>],
    pc: Pc,
) -> Option<(&'static str, String, Pc)> {
    let range = functions.iter().find(|f| f.contains(&pc.0))?;
    let index = |pc: Pc| (pc.0 - range.start) as usize;
    let mut edges = Vec::new();
    for at in range.clone().map(Pc) {
        for to in successors(code, at) {
            if range.contains(&to.0) {
                edges.push((index(at), index(to)));
            }
        }
    }
    let cfg = Cfg::new(range.len(), 0, edges);
    let loops = Loops::new(&cfg, &DomTree::new(&cfg));
    let around = loops.get(loops.innermost(index(pc))?);
    let mut search = Search {
        code,
        start: range.start,
        around,
        cfg: &cfg,
        from: BTreeMap::new(),
        causes: BTreeSet::new(),
    };
    for node in around.blocks.iter() {
        if cfg.succs(node).iter().all(|&to| around.blocks.contains(to)) {
            continue;
        }
        match code.at(Pc(range.start + node as u32)) {
            Insn::Jump { dst, src, .. } => {
                search.follow(*dst, node);
                if let Source::Reg(src) = src {
                    search.follow(*src, node);
                }
            }
            _ => return None,
        }
    }
    if search.causes.is_empty() {
        // The end depends on a flag; then on the branches that set it.
        for node in around.blocks.iter() {
            if let Insn::Jump { dst, src, .. } = code.at(Pc(range.start + node as u32)) {
                search.follow(*dst, node);
                if let Source::Reg(src) = src {
                    search.follow(*src, node);
                }
            }
        }
    }
    if search.causes.contains(&Cause::Own) || search.counts() {
        return None;
    }
    let slot = |pc: Pc| code.slot(pc);
    match *search.causes.first()? {
        Cause::Memory(at) => Some((
            "another thread",
            format!("the value that instruction {} reads", slot(at)),
            at,
        )),
        Cause::Lookup(at) => Some((
            "another thread",
            format!("the lookup at instruction {}", slot(at)),
            at,
        )),
        Cause::Clock(at) => Some((
            "time to pass",
            format!("the clock at instruction {}", slot(at)),
            at,
        )),
        Cause::Own => None,
    }
}

/// Follows the values that decide about a loop's end back to where they come from, inside the loop.
struct Search<'s> {
    code: &'s Code,
    start: u32,
    around: &'s Loop<usize>,
    cfg: &'s Cfg<usize>,
    /// The definitions found, each with those that it is computed from.
    from: BTreeMap<usize, BTreeSet<usize>>,
    causes: BTreeSet<Cause>,
}

impl Search<'_> {
    /// Finds what gives `reg` its value before `node`, and what gives those their values.
    fn follow(&mut self, reg: Reg, node: usize) {
        let mut work = self.definitions(reg, node);
        while let Some(def) = work.pop() {
            if self.from.contains_key(&def) {
                continue;
            }
            let mut from = BTreeSet::new();
            match self.source(def) {
                Given::Cause(cause) => {
                    self.causes.insert(cause);
                }
                Given::From(regs) => {
                    for reg in regs.into_iter().flatten() {
                        from.extend(self.definitions(reg, def));
                    }
                }
            }
            work.extend(from.iter().copied());
            self.from.insert(def, from);
        }
    }

    /// The instructions of the loop whose value of `reg` arrives at `node`.
    fn definitions(&self, reg: Reg, node: usize) -> Vec<usize> {
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        let mut work = vec![node];
        while let Some(at) = work.pop() {
            for &before in self.cfg.preds(at) {
                if !self.around.blocks.contains(before) || !seen.insert(before) {
                    continue;
                }
                if self.changes(before, reg) {
                    found.push(before);
                } else {
                    work.push(before);
                }
            }
        }
        found
    }

    fn insn(&self, node: usize) -> Insn {
        *self.code.at(Pc(self.start + node as u32))
    }

    /// What was in `reg` before is gone after it: it has a new value, or a call left none in `r1`
    /// to `r5`.
    fn changes(&self, node: usize, reg: Reg) -> bool {
        let insn = self.insn(node);
        let is_call = matches!(insn, Insn::Call { .. } | Insn::CallReg { .. });
        defines(insn) == Some(reg) || is_call && reg.index() <= 5
    }

    /// What a definition is made of.
    fn source(&self, node: usize) -> Given {
        let pc = Pc(self.start + node as u32);
        let of = |src: Source| match src {
            Source::Reg(src) => Some(src),
            Source::Imm(_) => None,
        };
        match self.insn(node) {
            Insn::Alu { op: AluOp::Mov, src, .. } => Given::From([of(src), None]),
            Insn::Alu { dst, src, .. } => Given::From([Some(dst), of(src)]),
            Insn::MovSx { src, .. } => Given::From([Some(src), None]),
            Insn::Neg { dst, .. } | Insn::End { dst, .. } => Given::From([Some(dst), None]),
            // The stack is the program's own: what it stored there may be a counter.
            Insn::Load { base: Reg::FP, .. }
            | Insn::LoadAcquire { base: Reg::FP, .. }
            | Insn::Atomic { base: Reg::FP, .. }
            // A ticket: it grows with each try.
            | Insn::Atomic { op: AtomicOp::Add { .. }, .. } => Given::Cause(Cause::Own),
            Insn::Load { .. } | Insn::LoadAcquire { .. } | Insn::Atomic { .. } => {
                Given::Cause(Cause::Memory(pc))
            }
            Insn::Call { callee: Callee::Helper(id) } => {
                Given::Cause(match by_id(id).map(|h| h.kind) {
                    Some(HelperId::MapLookupElem | HelperId::MapLookupPercpuElem) => {
                        Cause::Lookup(pc)
                    }
                    Some(
                        HelperId::MapUpdateElem
                        | HelperId::MapDeleteElem
                        | HelperId::RingbufOutput
                        | HelperId::RingbufReserve
                        | HelperId::RingbufReserveDynptr
                        | HelperId::RingbufQuery
                        | HelperId::UserRingbufDrain,
                    ) => Cause::Memory(pc),
                    Some(
                        HelperId::KtimeGetNs
                        | HelperId::KtimeGetBootNs
                        | HelperId::KtimeGetCoarseNs
                        | HelperId::KtimeGetTaiNs
                        | HelperId::GpuClock
                        | HelperId::GpuGlobaltimer,
                    ) => Cause::Clock(pc),
                    _ => Cause::Own,
                })
            }
            Insn::Call { .. } | Insn::CallReg { .. } => Given::Cause(Cause::Own),
            Insn::LoadImm64 { .. }
            | Insn::Store { .. }
            | Insn::StoreRelease { .. }
            | Insn::Jump { .. }
            | Insn::Goto { .. }
            | Insn::MayGoto { .. }
            | Insn::Exit
            | Insn::LegacyPacket { .. } => Given::From([None, None]),
        }
    }

    /// Some value is computed from its own of the round before.
    fn counts(&self) -> bool {
        self.from.keys().any(|&def| {
            let mut seen = BTreeSet::new();
            let mut work: Vec<usize> = self.from[&def].iter().copied().collect();
            while let Some(at) = work.pop() {
                if at == def {
                    return true;
                }
                if seen.insert(at) {
                    work.extend(self.from.get(&at).into_iter().flatten());
                }
            }
            false
        })
    }
}

/// What a definition is made of.
enum Given {
    Cause(Cause),
    /// The values of these registers.
    From([Option<Reg>; 2]),
}

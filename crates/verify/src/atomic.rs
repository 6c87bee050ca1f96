//! Which read-modify-writes of shared values become one atomic operation: what
//! `codegen::opt_atomics` does, told from the eBPF code. Where the two disagree, this one says no,
//! and a warning too many is given.

use std::collections::BTreeSet;

use warpbpf_abi::helpers::{Arg, Effect};
use warpbpf_ebpf::{AluOp, Callee, Insn, Reg, Source, Width};

use crate::facts::{InsnFact, Place};
use crate::graph::Graph;

/// Definitions that are looked at for one operand. Beyond it the answer is that the operand may
/// lead to the load, and where both may, there is no atomic.
const CHAIN: usize = 256;
/// Instructions before a store that are looked at, so that a long program without branches takes no
/// longer than one with them.
const LINE: usize = 256;
/// Instructions behind one that are looked at for a read of a register. Beyond it there may be one.
const BEHIND: usize = 4096;

fn accessed(graph: &Graph<'_>, node: usize) -> Option<(Place, Width)> {
    let width = match graph.insn(node) {
        Insn::Load { width, .. }
        | Insn::LoadAcquire { width, .. }
        | Insn::Store { width, .. }
        | Insn::StoreRelease { width, .. }
        | Insn::Atomic { width, .. } => width,
        _ => return None,
    };
    match graph.fact(node) {
        InsnFact::Access(place) => Some((*place, width)),
        _ => None,
    }
}

/// The two access common bytes, as far as their offsets tell.
pub fn overlap(graph: &Graph<'_>, a: usize, b: usize) -> bool {
    let (Some((a, a_width)), Some((b, b_width))) = (accessed(graph, a), accessed(graph, b)) else {
        return false;
    };
    a.region == b.region
        && match (a.offset, b.offset) {
            (Some(x), Some(y)) => {
                x < y + i64::from(b_width.bytes()) && y < x + i64::from(a_width.bytes())
            }
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
}

/// Instructions that run one after the other, up to a certain one.
pub struct Line<'g, 'a> {
    graph: &'g Graph<'a>,
    /// The last one first.
    nodes: Vec<usize>,
}

impl<'g, 'a> Line<'g, 'a> {
    /// The line that ends before `node`. Calls that may touch memory end it too.
    pub fn before(graph: &'g Graph<'a>, node: usize) -> Line<'g, 'a> {
        let mut nodes = Vec::new();
        let mut at = node;
        while let &[before] = graph.cfg.preds(at) {
            let quiet = match graph.insn(before) {
                Insn::Call {
                    callee: Callee::Helper(id),
                } => graph
                    .env
                    .platform
                    .helper(id)
                    .is_some_and(|h| h.effect == Effect::Observe && h.args[0] == Arg::None),
                Insn::Call { .. } | Insn::CallReg { .. } | Insn::Exit => false,
                _ => true,
            };
            // Each of them has one successor, so what comes round comes to the start first.
            let ends = before == node || nodes.len() == LINE;
            if !quiet || graph.cfg.succs(before).len() != 1 || ends {
                break;
            }
            nodes.push(before);
            at = before;
        }
        Line { graph, nodes }
    }

    fn upto(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        let skip = self
            .nodes
            .iter()
            .position(|&n| n == node)
            .map_or(0, |i| i + 1);
        self.nodes[skip..].iter().copied()
    }

    /// What gave `reg` the value that it has before `node`; copies are looked through.
    pub fn definition(&self, reg: Reg, node: usize) -> Option<usize> {
        self.origin(reg, node).ok()
    }

    /// As [`Line::definition`]; of a value from before the line, the register that holds it there.
    fn origin(&self, reg: Reg, node: usize) -> Result<usize, Reg> {
        let mut reg = reg;
        for at in self.upto(node) {
            if !writes(self.graph, at, reg) {
                continue;
            }
            match self.graph.insn(at) {
                Insn::Alu {
                    op: AluOp::Mov,
                    src: Source::Reg(src),
                    wide: true,
                    ..
                } => reg = src,
                _ => return Ok(at),
            }
        }
        Err(reg)
    }
}

fn writes(graph: &Graph<'_>, node: usize, reg: Reg) -> bool {
    if let Insn::Neg { dst, .. } | Insn::End { dst, .. } = graph.insn(node) {
        return dst == reg;
    }
    let frame = graph.frame(node);
    let mut any = false;
    graph.flows(node, &mut |flow| {
        any |= flow.to.frame == frame && flow.to.regs >> reg.index() & 1 != 0;
    });
    any
}

/// The code generator makes one atomic operation of this store, the load and what is between: a
/// whole 4- or 8-byte field is loaded, numbers are added and subtracted, or combined by one of and,
/// or, xor, and the result stored to the same address, in straight-line code in which nothing else
/// may write the field.
pub fn becomes_atomic(graph: &Graph<'_>, store: usize) -> bool {
    let Insn::Store {
        width,
        base,
        off,
        src: Source::Reg(value),
    } = graph.insn(store)
    else {
        return false;
    };
    if !matches!(width, Width::W32 | Width::W64) {
        return false;
    }
    let line = Line::before(graph, store);
    let is_load = |load: usize| {
        matches!(graph.insn(load), Insn::Load { width: w, base: b, off: o, signed: false, .. }
            if w == width && o == off && line.origin(b, load) == line.origin(base, store))
    };
    // From the store back to the load, combination by combination.
    let mut made = line.definition(value, store);
    let mut chain: Vec<usize> = Vec::new();
    let mut kind = None;
    let load = loop {
        let Some(node) = made else { return false };
        if is_load(node) && !chain.is_empty() {
            break node;
        }
        let Insn::Alu { op, dst, src, wide } = graph.insn(node) else {
            return false;
        };
        let this = match op {
            AluOp::Add | AluOp::Sub => AluOp::Add,
            AluOp::And | AluOp::Or | AluOp::Xor => op,
            _ => return false,
        };
        if *kind.get_or_insert(this) != this || (width == Width::W64 && !wide) {
            return false;
        }
        chain.push(node);
        let left = line.definition(dst, node);
        let right = match src {
            Source::Reg(src) => line.definition(src, node),
            Source::Imm(_) => None,
        };
        let leads =
            |def: Option<usize>| def.is_some_and(|def| leads_to(&line, def, this, &is_load));
        made = match (leads(left), leads(right)) {
            // Combined with itself.
            (true, true) => return false,
            (true, false) => left,
            (false, true) if op != AluOp::Sub => right,
            (false, _) => return false,
        };
    };
    // A combination that is needed for itself cannot be done with other operands. The last one can
    // be made again from the old value, but of a 4-byte field what is needed may be all 8 bytes of
    // the register.
    let last = usize::from(width == Width::W64 || chain.len() == 1);
    let inner = chain.get(last..).unwrap_or_default();
    let needed = Reg::all().any(|reg| {
        let made = line.definition(reg, store);
        made.is_some_and(|made| inner.contains(&made)) && is_read_behind(graph, store, reg)
    });
    if needed {
        return false;
    }
    let mut between = line.nodes.iter().copied().take_while(|&n| n != load);
    between.all(|node| match graph.insn(node) {
        // The values are needed before the atomic could give them.
        _ if !chain.contains(&node) && uses(&line, node, load, &chain) => false,
        Insn::Store { .. } | Insn::Atomic { .. } => {
            !overlap(graph, node, store) && !unknown_offset(graph, node, store)
        }
        Insn::StoreRelease { .. } | Insn::LoadAcquire { .. } => false,
        _ => true,
    })
}

/// Some path from behind `node` reads the value that `reg` has there. Calls of functions of the
/// program count as reads.
fn is_read_behind(graph: &Graph<'_>, node: usize, reg: Reg) -> bool {
    let mut pending: Vec<usize> = graph.cfg.succs(node).to_vec();
    let mut seen = BTreeSet::new();
    while let Some(node) = pending.pop() {
        if !seen.insert(node) {
            continue;
        }
        if reads(graph, node, reg) || seen.len() > BEHIND {
            return true;
        }
        if !writes(graph, node, reg) {
            pending.extend(graph.cfg.succs(node));
        }
    }
    false
}

fn reads(graph: &Graph<'_>, node: usize, reg: Reg) -> bool {
    let argument = reg.index().wrapping_sub(1);
    match graph.insn(node) {
        Insn::Call {
            callee: Callee::Helper(id),
        } => {
            let helper = graph.env.platform.helper(id);
            helper.is_none_or(|h| h.args.get(argument).is_some_and(|arg| *arg != Arg::None))
        }
        Insn::Call { .. } | Insn::CallReg { .. } => true,
        Insn::Exit => reg == Reg::R0,
        Insn::Alu {
            op: AluOp::Mov,
            src,
            ..
        } => register(src) == Some(reg),
        _ => operands(graph.insn(node)).contains(&Some(reg)),
    }
}

/// `node` is the load, or a combination of that kind of something that leads to it.
fn leads_to(
    line: &Line<'_, '_>,
    node: usize,
    kind: AluOp,
    is_load: &dyn Fn(usize) -> bool,
) -> bool {
    let mut pending = vec![node];
    // Each definition lies before what it defines, so this ends; a chain of additions of one value
    // to itself doubles.
    let mut looked = 0;
    while let Some(node) = pending.pop() {
        looked += 1;
        if is_load(node) || looked > CHAIN {
            return true;
        }
        if let Insn::Alu { op, dst, src, .. } = line.graph.insn(node)
            && (op == kind || (kind == AluOp::Add && op == AluOp::Sub))
        {
            pending.extend(line.definition(dst, node));
            if let Source::Reg(src) = src {
                pending.extend(line.definition(src, node));
            }
        }
    }
    false
}

/// The instruction does something with what was loaded or computed, other than to copy it.
fn uses(line: &Line<'_, '_>, node: usize, load: usize, chain: &[usize]) -> bool {
    let registers = operands(line.graph.insn(node));
    registers.into_iter().flatten().any(|reg| {
        line.definition(reg, node)
            .is_some_and(|def| def == load || chain.contains(&def))
    })
}

/// The registers that an instruction does something with, other than to copy or hand them on.
fn operands(insn: Insn) -> [Option<Reg>; 2] {
    let (a, b) = match insn {
        Insn::Alu {
            op: AluOp::Mov,
            wide: true,
            ..
        }
        | Insn::LoadImm64 { .. } => (None, None),
        Insn::Alu { op, dst, src, .. } => {
            let left = (op != AluOp::Mov).then_some(dst);
            (left, register(src))
        }
        Insn::MovSx { src, .. } => (Some(src), None),
        Insn::Neg { dst, .. } | Insn::End { dst, .. } => (Some(dst), None),
        Insn::Load { base, .. } | Insn::LoadAcquire { base, .. } => (Some(base), None),
        Insn::Store { base, src, .. } => (Some(base), register(src)),
        Insn::StoreRelease { base, src, .. } | Insn::Atomic { base, src, .. } => {
            (Some(base), Some(src))
        }
        Insn::Jump { dst, src, .. } => (Some(dst), register(src)),
        Insn::Goto { .. } | Insn::MayGoto { .. } => (None, None),
        Insn::Call { .. } | Insn::CallReg { .. } | Insn::Exit | Insn::LegacyPacket { .. } => {
            (None, None)
        }
    };
    [a, b]
}

fn register(src: Source) -> Option<Reg> {
    match src {
        Source::Reg(reg) => Some(reg),
        Source::Imm(_) => None,
    }
}

/// Same map, and the offsets do not tell whether the bytes are the same.
fn unknown_offset(graph: &Graph<'_>, a: usize, b: usize) -> bool {
    match (accessed(graph, a), accessed(graph, b)) {
        (Some((a, _)), Some((b, _))) => {
            a.region == b.region && (a.offset.is_none() || b.offset.is_none())
        }
        _ => false,
    }
}

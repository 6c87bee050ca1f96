//! Which read-modify-writes of shared values become one atomic operation: what `codegen::opt_atomics` does, told from the
//! eBPF code. Where the two disagree, this one says no, and a warning too many is given.

use warpbpf_abi::helpers::{Arg, Effect};
use warpbpf_ebpf::{AluOp, Callee, Insn, Reg, Source, Width};

use crate::facts::{InsnFact, Place};
use crate::graph::Graph;

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
            if !quiet || graph.cfg.succs(before).len() != 1 || nodes.contains(&before) {
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
                _ => return Some(at),
            }
        }
        None
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

/// The code generator makes one atomic operation of this store, the load and what is between: a whole 4- or 8-byte
/// field is loaded, one number is added, subtracted, or combined by and, or, xor, and the result stored to the same
/// address, in straight-line code in which nothing else may write the field.
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
    let Some(combine) = line.definition(value, store) else {
        return false;
    };
    let Insn::Alu { op, dst, src, .. } = graph.insn(combine) else {
        return false;
    };
    if !matches!(
        op,
        AluOp::Add | AluOp::Sub | AluOp::And | AluOp::Or | AluOp::Xor
    ) {
        return false;
    }
    let is_load = |reg: Reg| {
        let load = line.definition(reg, combine)?;
        let same = matches!(graph.insn(load), Insn::Load { width: w, base: b, off: o, signed: false, .. }
            if w == width && o == off && (b == base || line.definition(b, load) == line.definition(base, store))
                && line.definition(b, load) == line.definition(base, store));
        same.then_some(load)
    };
    let left = is_load(dst);
    let right = match src {
        Source::Reg(src) => is_load(src),
        Source::Imm(_) => None,
    };
    let load = match (left, right) {
        // Combined with itself.
        (Some(a), Some(b)) if a == b => return false,
        (Some(load), _) => load,
        (None, Some(load)) if op != AluOp::Sub => load,
        (None, _) => return false,
    };
    let mut between = line.nodes.iter().copied().take_while(|&n| n != load);
    between.all(|node| match graph.insn(node) {
        // The values are needed before the atomic could give them.
        _ if node != combine && uses(&line, node, load, combine) => false,
        Insn::Store { .. } | Insn::Atomic { .. } => {
            !overlap(graph, node, store) && !unknown_offset(graph, node, store)
        }
        Insn::StoreRelease { .. } | Insn::LoadAcquire { .. } => false,
        _ => true,
    })
}

/// The instruction does something with what was loaded or computed, other than to copy it.
fn uses(line: &Line<'_, '_>, node: usize, load: usize, combine: usize) -> bool {
    let (a, b) = match line.graph.insn(node) {
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
        // The calls that a line may have take no arguments.
        Insn::Call { .. } | Insn::CallReg { .. } | Insn::Exit | Insn::LegacyPacket { .. } => {
            (None, None)
        }
    };
    [a, b].into_iter().flatten().any(|reg| {
        line.definition(reg, node)
            .is_some_and(|def| def == load || def == combine)
    })
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

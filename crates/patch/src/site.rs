//! Finds where a kernel begins and every way out of it, PTX ISA "Control Flow Instructions: ret,
//! exit".
//!
//! `trap` is no way out: it ends the whole launch. Neither is a call that does not return.

use std::collections::{BTreeMap, BTreeSet};

use warpbpf_ptx::ast::{Instruction, Operand, Span, StatementKind};

use crate::body::Body;

/// A way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Exit {
    /// `ret` or `exit`: index of the statement.
    Leave(usize),
    /// A branch to a label where nothing but a way out follows: the label's bytes in the branch, or
    /// in the list of `.branchtargets`.
    Branch(Span),
}

/// The ways out of a kernel.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Exits {
    /// In text order.
    pub(crate) list: Vec<Exit>,
    /// The end of the body can be reached, which is a way out too.
    pub(crate) falls_off: bool,
}

/// All ways out of the kernel `body`. With `branches`, a branch to a way out is itself one, so that
/// threads which leave early need not pass through code that other threads pass too.
pub(crate) fn exits(body: &Body<'_, '_>, text: &str, branches: bool) -> Exits {
    let mut exits = Exits {
        list: Vec::new(),
        falls_off: falls_off(body),
    };
    let ways = if branches {
        exit_labels(body)
    } else {
        BTreeSet::new()
    };
    for (index, statement) in body.statements.iter().enumerate() {
        match &statement.kind {
            StatementKind::Instruction(i) if leaves(i) => exits.list.push(Exit::Leave(index)),
            StatementKind::Instruction(i) => {
                let label = branch_target(i).filter(|label| ways.contains(label));
                let span = i.operand_spans.first();
                exits
                    .list
                    .extend(label.and(span).map(|s| Exit::Branch(s.clone())));
            }
            StatementKind::BranchTargets { targets, .. } => {
                for target in targets.iter().filter(|target| ways.contains(*target)) {
                    let start = target.as_ptr() as usize - text.as_ptr() as usize;
                    exits.list.push(Exit::Branch(start..start + target.len()));
                }
            }
            StatementKind::Label(_)
            | StatementKind::Open
            | StatementKind::Close
            | StatementKind::Registers(_)
            | StatementKind::Variable(_)
            | StatementKind::Loc(_)
            | StatementKind::Pragma(_)
            | StatementKind::CallPrototype { .. }
            | StatementKind::CallTargets { .. }
            | StatementKind::Directive(_) => {}
        }
    }
    exits
}

/// The `exit`s of a device function: its `ret` goes back to its caller.
pub(crate) fn function_exits(body: &Body<'_, '_>) -> Vec<usize> {
    body.instructions()
        .filter(|(_, i)| i.opcode == "exit")
        .map(|(index, _)| index)
        .collect()
}

fn leaves(instruction: &Instruction<'_>) -> bool {
    matches!(instruction.opcode, "ret" | "exit")
}

fn branch_target<'a>(instruction: &Instruction<'a>) -> Option<&'a str> {
    match (instruction.opcode, instruction.operands.first()) {
        ("bra", Some(Operand::Name(label))) => Some(label),
        _ => None,
    }
}

/// No instruction, or a last one that control passes.
pub(crate) fn falls_off(body: &Body<'_, '_>) -> bool {
    let last = body.statements.iter().rev().find(|s| {
        matches!(
            s.kind,
            StatementKind::Instruction(_) | StatementKind::Label(_)
        )
    });
    match last.map(|s| &s.kind) {
        Some(StatementKind::Instruction(i)) => {
            i.guard.is_some() || !matches!(i.opcode, "ret" | "exit" | "bra" | "brx" | "trap")
        }
        _ => true,
    }
}

/// Labels behind which the only thing that happens is that the thread leaves.
fn exit_labels<'a>(body: &Body<'_, 'a>) -> BTreeSet<&'a str> {
    // Inline assembly repeats labels in nested scopes; a name that stands for several places is
    // left alone.
    let mut depth = 0u32;
    let mut places: BTreeMap<&'a str, Option<usize>> = BTreeMap::new();
    for (index, statement) in body.statements.iter().enumerate() {
        match &statement.kind {
            StatementKind::Open => depth += 1,
            StatementKind::Close => depth = depth.saturating_sub(1),
            StatementKind::Label(label) => {
                let place = (depth == 0).then_some(index);
                places
                    .entry(label)
                    .and_modify(|known| *known = None)
                    .or_insert(place);
            }
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    loop {
        let known = found.len();
        for (label, place) in &places {
            if place.is_some_and(|place| leads_out(body, place, &found)) {
                found.insert(*label);
            }
        }
        if found.len() == known {
            return found;
        }
    }
}

/// The instructions between a branch to `label`, behind which nothing happens but that the thread
/// leaves, and the end of the thread: the branches that it goes on through, and the `ret` or
/// `exit`.
pub(crate) fn way_out(body: &Body<'_, '_>, label: &str) -> Vec<usize> {
    let mut way = Vec::new();
    let mut label = label;
    loop {
        let place = body.statements.iter().position(|s| match &s.kind {
            StatementKind::Label(name) => *name == label,
            _ => false,
        });
        let mut behind = body.instructions().skip_while(|(i, _)| Some(*i) < place);
        let Some((index, instruction)) = behind.next().filter(|(i, _)| !way.contains(i)) else {
            return way;
        };
        way.push(index);
        match branch_target(instruction) {
            Some(next) => label = next,
            None => return way,
        }
    }
}

/// The first instruction behind statement `at` leaves, or jumps to a label of `found`, without
/// condition.
fn leads_out(body: &Body<'_, '_>, at: usize, found: &BTreeSet<&str>) -> bool {
    let next = body.statements[at..]
        .iter()
        .find(|s| !matches!(s.kind, StatementKind::Label(_) | StatementKind::Loc(_)));
    match next.map(|s| &s.kind) {
        Some(StatementKind::Instruction(i)) if i.guard.is_none() => {
            leaves(i) || branch_target(i).is_some_and(|label| found.contains(label))
        }
        Some(_) => false,
        // The end of the body.
        None => true,
    }
}

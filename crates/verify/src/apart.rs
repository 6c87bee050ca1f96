//! Instructions that a compiler made one of several, made several again: clang lets branches that
//! end alike share their ends, so that one access may be of two maps, one message have two texts,
//! which neither the proof nor the code made by it can express ([`Rule::Mixed`]).
//!
//! A branch that goes to such an end gets the end for itself. What is proved then is another eBPF
//! program that does the same, as with [`crate::bounded`]; what its author wrote had these
//! instructions apart to begin with.

use std::collections::BTreeMap;
use std::ops::Range;

use warpbpf_ebpf::{Callee, Code, Insn, Pc};
use warpbpf_object::{LineInfo, Program};

use crate::report::Rejection;
use crate::rule::Rule;
use crate::verified::Verified;

/// How often ends are taken apart in one program.
const ROUNDS: usize = 16;
/// Instructions of an end that is taken apart.
const LONGEST: u32 = 64;

/// Proves a program by `prove`, taking ends of branches apart where an instruction works on
/// different things.
///
/// # Errors
/// The rule that the program breaks; where taking apart does not help, as it is told of the program
/// that was given.
pub fn prove_apart(
    program: Program,
    prove: &mut dyn FnMut(Program) -> Result<Verified<Program>, Box<Rejection>>,
) -> Result<Verified<Program>, Box<Rejection>> {
    let first = match prove(program.clone()) {
        Err(rejection) if matches!(rejection.rule, Rule::Mixed { .. }) => rejection,
        other => return other,
    };
    let (mut program, mut at) = (program, first.pc);
    for _ in 0..ROUNDS {
        let Some(apart) = taken_apart(&program, at) else {
            break;
        };
        program = apart;
        match prove(program.clone()) {
            Ok(verified) => return Ok(verified),
            Err(rejection) if matches!(rejection.rule, Rule::Mixed { .. }) => at = rejection.pc,
            // Its numbers may be those of copies, of which its author knows nothing.
            Err(_) => break,
        }
    }
    Err(first)
}

/// It may go on to the next instruction, and does the same wherever it stands.
fn goes_on(insn: &Insn) -> bool {
    match insn {
        Insn::Goto { .. }
        | Insn::MayGoto { .. }
        | Insn::CallReg { .. }
        | Insn::LegacyPacket { .. }
        | Insn::Exit
        | Insn::Call {
            callee: Callee::Local(_),
        } => false,
        Insn::Jump { .. }
        | Insn::Alu { .. }
        | Insn::MovSx { .. }
        | Insn::Neg { .. }
        | Insn::End { .. }
        | Insn::LoadImm64 { .. }
        | Insn::Load { .. }
        | Insn::Store { .. }
        | Insn::Atomic { .. }
        | Insn::LoadAcquire { .. }
        | Insn::StoreRelease { .. }
        | Insn::Call { .. } => true,
    }
}

/// Where a jump goes.
fn goes_to(insn: &Insn) -> Option<Pc> {
    match insn {
        Insn::Jump { target, .. } | Insn::Goto { target, .. } => Some(*target),
        _ => None,
    }
}

/// The same program with what leads to `pc`, one instruction after the other, once for each jump
/// into it; `None` if there is one way to it only. Who leaves it on the way goes where it went.
fn taken_apart(program: &Program, pc: Pc) -> Option<Program> {
    let old = program.code.insns();
    let function = program.function_of(pc)?;
    let (start, end) = (function.start.0, function.end.0);
    let mut head = pc.0;
    while head > start && pc.0 - head < LONGEST && goes_on(&old[head as usize - 1]) {
        head -= 1;
    }
    let line = head..pc.0 + 1;
    let falls_in =
        head > start && !matches!(old[head as usize - 1], Insn::Goto { .. } | Insn::Exit);
    let enters = |at: u32| {
        let target = goes_to(&old[at as usize])?;
        line.contains(&target.0).then_some((at, target.0))
    };
    let mut jumps: Vec<(u32, u32)> = (start..end).filter_map(enters).collect();
    if !falls_in && head != start {
        // The one that comes in first has what is there.
        let first = jumps.iter().enumerate().min_by_key(|(_, jump)| jump.1)?.0;
        jumps.remove(first);
    }
    // What follows is the next instruction of the function, or there is nothing to come back to.
    if jumps.is_empty() || pc.0 + 1 >= end {
        return None;
    }
    Some(copied(program, start..end, pc, &jumps))
}

/// Puts behind a function the instructions from each jump's target to `pc`, and has the jump go
/// there.
fn copied(program: &Program, function: Range<u32>, pc: Pc, jumps: &[(u32, u32)]) -> Program {
    let old = program.code.insns();
    let end = function.end;
    let mut copies: Vec<Insn> = Vec::new();
    // Where each copy comes from.
    let mut origins: Vec<u32> = Vec::new();
    let mut entries = BTreeMap::new();
    for (jump, target) in jumps {
        entries.insert(*jump, Pc(end + copies.len() as u32));
        copies.extend_from_slice(&old[*target as usize..=pc.index()]);
        origins.extend(*target..=pc.0);
        copies.push(Insn::Goto {
            target: Pc(pc.0 + 1),
            long: true,
        });
        origins.push(pc.0);
    }
    let shift = copies.len() as u32;
    let moved = |at: Pc| if at.0 >= end { Pc(at.0 + shift) } else { at };
    let mut insns = Vec::with_capacity(old.len() + copies.len());
    for (at, insn) in (0..).zip(old) {
        if at == end {
            insns.extend(copies.iter().map(|copy| copy.retargeted(moved)));
        }
        insns.push(match entries.get(&at) {
            Some(entry) => insn.retargeted(|_| *entry),
            None => insn.retargeted(moved),
        });
    }
    if end as usize == old.len() {
        insns.extend(copies.iter().map(|copy| copy.retargeted(moved)));
    }
    let mut new = program.clone();
    new.code = Code::new(insns);
    for function in &mut new.functions {
        function.start = moved(function.start);
        if function.end.0 >= end {
            function.end.0 += shift;
        }
    }
    for line in &mut new.lines {
        line.pc = moved(line.pc);
    }
    let copy_of = |(at, origin): (u32, &u32)| (Pc(end + at), Pc(*origin));
    let from: Vec<(Pc, Pc)> = (0..).zip(&origins).map(copy_of).collect();
    let lines = from.iter().filter_map(|(at, origin)| {
        Some(LineInfo {
            pc: *at,
            ..program.line_of(*origin)?.clone()
        })
    });
    let place = new.lines.partition_point(|line| line.pc.0 < end);
    let lines: Vec<LineInfo> = lines.collect();
    new.lines.splice(place..place, lines);
    let there = program.unresolved.iter();
    new.unresolved = there.map(|(at, text)| (moved(*at), text.clone())).collect();
    let copies = from.iter().filter_map(|(at, origin)| {
        let text = program.unresolved.get(origin)?;
        Some((*at, text.clone()))
    });
    new.unresolved.extend(copies);
    new
}

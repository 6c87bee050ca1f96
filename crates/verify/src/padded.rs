//! Padding in keys and records that nobody wrote, zeroed: Linux's verifier refuses it, most
//! programs for GPUs that come from elsewhere have it, and what was never written must not reach
//! the host.
//!
//! As with [`crate::bounded`] what is proved is another eBPF program: the bytes are set to zero
//! where the function begins. So they are zero on every path that writes nothing else there, and
//! whatever runs programs knows nothing of it.

use std::collections::BTreeSet;

use warpbpf_ebpf::{Callee, Code, Imm64, Insn, Pc, Reg, Source, Width, disasm};
use warpbpf_object::Program;

use crate::report::Rejection;
use crate::rule::Rule;
use crate::subject::Subject;
use crate::verified::Verified;
use crate::warn::Warning;

/// How many gaps are zeroed in one program.
const GAPS: usize = 64;

/// A gap in a variable.
struct Gap {
    /// First instruction of the function whose stack it is on.
    function: Pc,
    /// From the frame pointer.
    offset: i64,
    bytes: u64,
}

/// Proves a program by `prove`, with padding zeroed that a helper reads and nobody wrote. Each gap
/// is a [`Warning`] of the result.
///
/// # Errors
/// The rule that the program breaks; numbers of instructions count the stores that zero.
pub fn prove_padded(
    program: Program,
    prove: &mut dyn FnMut(Program) -> Result<Verified<Program>, Box<Rejection>>,
) -> Result<Verified<Program>, Box<Rejection>> {
    let mut program = program;
    let mut warnings: Vec<(Pc, String)> = Vec::new();
    let mut zeroed = BTreeSet::new();
    loop {
        let refused = match prove(program.clone()) {
            Ok(mut verified) => {
                let warnings = warnings
                    .into_iter()
                    .map(|(pc, message)| warning(&program, pc, message));
                verified.also_warn(warnings);
                return Ok(verified);
            }
            Err(refused) => refused,
        };
        let Some(gap) = gap(&program, &refused) else {
            return Err(refused);
        };
        // Where zeros do not help, something else takes them away.
        if zeroed.len() == GAPS || !zeroed.insert((gap.function, gap.offset)) {
            return Err(refused);
        }
        let stores = stores(&gap);
        let count = stores.len() as u32;
        program = with_stores(&program, gap.function, &stores);
        // What was noted before has moved.
        let moved = |pc: Pc| match pc >= gap.function {
            true => Pc(pc.0 + count),
            false => pc,
        };
        for (pc, _) in &mut warnings {
            *pc = moved(*pc);
        }
        zeroed = zeroed
            .into_iter()
            .map(|(start, offset)| match start > gap.function {
                true => (Pc(start.0 + count), offset),
                false => (start, offset),
            })
            .collect();
        warnings.push((moved(refused.pc), refused.rule.to_string()));
    }
}

fn gap(program: &Program, refused: &Rejection) -> Option<Gap> {
    let Rule::Padding {
        offset,
        bytes,
        caller,
        ..
    } = refused.rule
    else {
        return None;
    };
    let function = program.function_of(caller.unwrap_or(refused.pc))?;
    Some(Gap {
        function: function.start,
        offset,
        bytes,
    })
}

fn warning(program: &Program, pc: Pc, message: String) -> Warning {
    Warning {
        name: "padding",
        pc,
        slot: program.code.slot(pc),
        insn: disasm::disassemble(&program.code, pc),
        line: Subject::line_of(program, pc),
        message: format!("{message}; they are set to zero"),
        help: "initialise the variable, padding included (`= {}`)".to_owned(),
        related: None,
    }
}

/// Stores of zeros, each at a multiple of its size.
fn stores(gap: &Gap) -> Vec<Insn> {
    let (mut at, end) = (gap.offset, gap.offset.saturating_add_unsigned(gap.bytes));
    let mut stores = Vec::new();
    while at < end {
        let widths = [Width::W64, Width::W32, Width::W16, Width::W8];
        let fits = |width: &Width| {
            let bytes = i64::from(width.bytes());
            at % bytes == 0 && at + bytes <= end
        };
        let width = widths.into_iter().find(fits).unwrap_or(Width::W8);
        stores.push(Insn::Store {
            width,
            base: Reg::FP,
            off: at as i16,
            src: Source::Imm(0),
        });
        at += i64::from(width.bytes());
    }
    stores
}

/// The program with instructions in front of those of a function. Who calls it comes to these, a
/// jump to its first one does not.
fn with_stores(program: &Program, function: Pc, stores: &[Insn]) -> Program {
    let count = stores.len() as u32;
    let called = |pc: Pc| match pc > function {
        true => Pc(pc.0 + count),
        false => pc,
    };
    let jumped = |pc: Pc| match pc >= function {
        true => Pc(pc.0 + count),
        false => pc,
    };
    let old = program.code.insns();
    let mut insns = Vec::with_capacity(old.len() + stores.len());
    for (pc, insn) in (0..).map(Pc).zip(old) {
        if pc == function {
            insns.extend_from_slice(stores);
        }
        insns.push(match insn {
            Insn::Call {
                callee: Callee::Local(_),
            }
            | Insn::LoadImm64 {
                value: Imm64::Func(_),
                ..
            } => insn.retargeted(called),
            _ => insn.retargeted(jumped),
        });
    }
    let mut new = program.clone();
    new.code = Code::new(insns);
    for function in &mut new.functions {
        function.start = called(function.start);
        function.end = jumped(function.end);
    }
    // The first line of the function is that of its new instructions, too.
    for line in &mut new.lines {
        line.pc = called(line.pc);
    }
    let unresolved = program.unresolved.iter();
    new.unresolved = unresolved
        .map(|(pc, text)| (jumped(*pc), text.clone()))
        .collect();
    new
}

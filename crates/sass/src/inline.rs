//! Probes whose code stands in the stubs themselves: a call and a return cost as much as many
//! programs do.

use crate::arch::Arch;
use crate::probe::{FixKind, Probe};
use crate::table::{Op, base};
use crate::word::{BYTES, Insn, Word};

/// Most instructions of a probe that stands at each exit.
const SHORT: usize = 96;
/// Most instructions of all its copies in a kernel.
const ALL: usize = 1024;

/// The instructions of a probe that can stand in `copies` places: it calls nothing, and is not too
/// long. What the assembler fills up with is none of it.
pub(crate) fn body(probe: &Probe, copies: usize) -> Option<&[Word]> {
    if probe.fixes.iter().any(|fix| fix.kind != FixKind::Return) {
        return None;
    }
    let is_filler = |(index, word): (usize, &Word)| {
        let at = (index * BYTES) as u64;
        let always = word.bits(12, 4) == 7;
        let is_nop = Insn::decode(*word, probe.arch).is_some_and(|insn| insn.op == Op::Nop);
        is_nop || always && word.base() == base::BRA && word.leads_to(at, probe.arch) == Some(at)
    };
    let last = (probe.words.iter().enumerate()).rposition(|pair| !is_filler(pair))?;
    let body = &probe.words[..=last];
    let short = copies == 1 || body.len() <= SHORT && body.len() * copies <= ALL;
    // Something that leads behind it would not be understood.
    let stays = body.iter().enumerate().all(|(index, word)| {
        let to = word.leads_to((index * BYTES) as u64, probe.arch);
        to.is_none_or(|to| to <= (last * BYTES) as u64)
    });
    (short && stays).then_some(body)
}

/// What a probe's return becomes where it goes on behind its last instruction, which ends at `end`.
pub(crate) fn back(word: Word, at: u64, end: u64, arch: Arch) -> Option<Insn> {
    let insn = Insn::decode(word, arch).filter(|insn| insn.op == Op::RetAbs)?;
    let falls = at + BYTES as u64 == end;
    Some(if falls {
        // It waits for what the return waits for.
        Insn::new(Op::Nop, insn.control)
    } else {
        let jump = Insn {
            op: Op::Bra,
            source: 0,
            ..insn
        };
        jump.leading(at, end)
    })
}

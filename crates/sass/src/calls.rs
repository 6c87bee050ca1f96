//! Which functions in a kernel's code call which: where one may come to itself again, nobody can
//! say how much stack is in use.

use std::collections::{BTreeMap, BTreeSet};

use crate::arch::Arch;
use crate::table::base;
use crate::word::{BYTES, Insn, Predicate, Word};

/// A call by which a function may come to itself, if there is one. Calls through registers are not
/// looked at.
pub(crate) fn recursion(words: &[Word], arch: Arch) -> Option<u64> {
    let all = words.iter().zip((0u64..).step_by(BYTES));
    let called = |(word, at): (&Word, u64)| callee(*word, at, arch);
    let functions: BTreeSet<u64> = all.filter_map(called).collect();
    let calls: BTreeMap<u64, Calls> = functions
        .into_iter()
        .map(|function| (function, Calls::of(words, function, arch)))
        .collect();
    for (function, own) in &calls {
        // Where a branch leads is not known, so it may be anywhere.
        if let Some(at) = own.indirect {
            return Some(at);
        }
        let mut reached = BTreeSet::new();
        let mut open: Vec<u64> = own.to.keys().copied().collect();
        while let Some(next) = open.pop() {
            if reached.insert(next) {
                open.extend(
                    calls
                        .get(&next)
                        .into_iter()
                        .flat_map(|calls| calls.to.keys()),
                );
            }
        }
        if reached.contains(function) {
            return own.to.values().next().copied();
        }
    }
    None
}

/// Calls of one function.
struct Calls {
    /// Whom, and from where.
    to: BTreeMap<u64, u64>,
    /// A branch whose target is in a register.
    indirect: Option<u64>,
}

impl Calls {
    /// Those of the code that is reached from `start` without a return.
    fn of(words: &[Word], start: u64, arch: Arch) -> Calls {
        let mut calls = Calls {
            to: BTreeMap::new(),
            indirect: None,
        };
        let mut seen = vec![false; words.len()];
        let mut open = vec![start];
        while let Some(at) = open.pop() {
            let index = at as usize / BYTES;
            let Some(word) = words.get(index).filter(|_| !seen[index]) else {
                continue;
            };
            seen[index] = true;
            let behind = at + BYTES as u64;
            if let Some(to) = callee(*word, at, arch) {
                calls.to.entry(to).or_insert(at);
            }
            match word.base() {
                base::BRA => {
                    open.extend(word.leads_to(at, arch));
                    if !ends(*word, arch) {
                        open.push(behind);
                    }
                }
                base::RET | base::EXIT if ends(*word, arch) => {}
                base::BRX | base::BRX_UNIFORM | base::JMP | base::JMX => {
                    calls.indirect = calls.indirect.or(Some(at));
                }
                _ => open.push(behind),
            }
        }
        calls
    }
}

/// Whom an instruction calls.
fn callee(word: Word, at: u64, arch: Arch) -> Option<u64> {
    let calls = word.base() == base::CALL_REL;
    calls.then(|| word.leads_to(at, arch)).flatten()
}

/// No lane goes on behind the instruction.
fn ends(word: Word, arch: Arch) -> bool {
    let insn = Insn::decode(word, arch);
    insn.is_some_and(|i| i.guard == Predicate::ALWAYS && i.second == Predicate::ALWAYS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Op;
    use crate::word::Control;

    const ARCH: Arch = Arch::Sm90;

    fn word(at: u64, op: Op, to: u64) -> Word {
        let insn = Insn::new(op, Control::jump()).leading(at, to);
        insn.encode(ARCH).unwrap()
    }

    fn code(list: &[(Op, u64)]) -> Vec<Word> {
        let words = list.iter().zip((0u64..).step_by(BYTES));
        words
            .map(|((op, to), at)| match op {
                Op::Bra | Op::CallRel => word(at, *op, *to),
                _ => Insn::new(*op, Control::jump()).encode(ARCH).unwrap(),
            })
            .collect()
    }

    #[test]
    fn functions_that_come_to_themselves_are_found() {
        use Op::{Bra, CallRel, Exit, Nop, RetAbs};
        // A kernel, and two functions at 0x30 and 0x50, one of which calls the other.
        let mut list = [
            (CallRel, 0x30),
            (CallRel, 0x50),
            (Exit, 0),
            (CallRel, 0x50),
            (RetAbs, 0),
            (Nop, 0),
            (RetAbs, 0),
            (Nop, 0),
        ];
        assert_eq!(recursion(&code(&list), ARCH), None);
        // What follows a return is not the function's.
        list[7] = (CallRel, 0x50);
        assert_eq!(recursion(&code(&list), ARCH), None);
        // By a branch it is.
        list[5] = (Bra, 0x70);
        assert_eq!(recursion(&code(&list), ARCH), Some(0x70));
        // By way of the other one.
        list[7] = (CallRel, 0x30);
        assert_eq!(recursion(&code(&list), ARCH), Some(0x30));
        // A loop in the kernel calls again and again, and does not go deeper.
        let round = [(CallRel, 0x20), (Bra, 0), (RetAbs, 0)];
        assert_eq!(recursion(&code(&round), ARCH), None);
        // A function whose branch could lead anywhere.
        let mut words = code(&round);
        words[2] = Word(u128::from(base::BRX) | 0x800 | 7 << 12);
        assert_eq!(recursion(&words, ARCH), Some(0x20));
    }
}

//! At which offset of a bank a load reads, where that is in a register: functions of the driver are
//! called by an address that is loaded so, and the compiler puts the offset into the register a few
//! instructions earlier.
//!
//! Only what stands in one line of simple instructions is followed. Where anything else could lead
//! in between, nothing is known.

use std::collections::{HashMap, HashSet};

use crate::arch::Arch;
use crate::table::{Op, base};
use crate::word::{BYTES, Insn, Predicate, RZ, Word};

/// A load from a bank into a register.
pub(crate) const LDC: u16 = 0x182;
/// Instructions that write the register that they name as their target, and perhaps the three
/// behind it: `IADD3` and the like, moves, `S2R`, loads of constants and of the stack; those that
/// write none or only uniform ones; stores.
const SIMPLE: [u16; 22] = [
    0x002, 0x005, 0x007, 0x00c, 0x010, 0x011, 0x012, 0x016, 0x019, 0x024, 0x025, 0x036, 0x082,
    0x090, 0x0b9, 0x118, 0x119, LDC, 0x183, 0x185, 0x186, 0x187,
];
/// Registers that one of those may write.
const WRITTEN: u8 = 4;

/// Where loads at an offset in a register read, by their own offsets in the code, as far as it is
/// known.
pub(crate) fn of_loads(words: &[Word], arch: Arch) -> HashMap<u64, u64> {
    let all = || words.iter().zip((0u64..).step_by(BYTES));
    let indirect = |w: &Word| {
        matches!(
            w.base(),
            base::BRX | base::BRX_UNIFORM | base::JMX | base::JMP
        )
    };
    if words.iter().any(indirect) {
        return HashMap::new();
    }
    let leads: HashSet<u64> = all().filter_map(|(w, at)| w.leads_to(at, arch)).collect();
    // A number may be where a function comes back to, and who moves it is known. Otherwise it comes
    // back behind its call, which ends a line.
    let mut numbers: HashMap<u64, Vec<u64>> = HashMap::new();
    for (word, at) in all() {
        if let Some((_, number)) = moved(*word, arch) {
            numbers.entry(number).or_default().push(at);
        }
    }
    let mut found = HashMap::new();
    let mut known: Vec<Known> = Vec::new();
    for (word, at) in all() {
        let from = numbers.get(&at);
        known.retain(|k| !leads.contains(&at) && from.is_none_or(|from| *from == [k.from]));
        if word.base() == LDC {
            let register = word.bits(24, 8) as u8;
            let index = known.iter().find(|k| k.register == register);
            if let Some(index) = index.filter(|_| word.bits(38, 16) == 0) {
                found.insert(at, index.number);
            }
        }
        if !SIMPLE.contains(&word.base()) {
            known.clear();
            continue;
        }
        let first = word.bits(16, 8) as u8;
        let written = first..=first.saturating_add(WRITTEN - 1);
        known.retain(|k| !written.contains(&k.register));
        if let Some((register, number)) = moved(*word, arch) {
            known.push(Known {
                register,
                number,
                from: at,
            });
        }
    }
    found
}

/// A register that holds a number.
struct Known {
    register: u8,
    number: u64,
    /// The instruction that moved it there.
    from: u64,
}

/// What an instruction moves into which register, whatever it depends on elsewhere.
fn moved(word: Word, arch: Arch) -> Option<(u8, u64)> {
    let insn = Insn::decode(word, arch)?;
    let moves = insn.op == Op::MovImm && insn.guard == Predicate::ALWAYS && insn.target != RZ;
    moves.then_some((insn.target, u64::from(insn.number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::Control;

    const ARCH: Arch = Arch::Sm90;

    fn mov(register: u8, number: u32) -> Word {
        let insn = Insn {
            target: register,
            number,
            ..Insn::new(Op::MovImm, Control::stall(1))
        };
        insn.encode(ARCH).unwrap()
    }

    fn branch(at: u64, to: u64) -> Word {
        let insn = Insn::new(Op::Bra, Control::jump()).leading(at, to);
        insn.encode(ARCH).unwrap()
    }

    /// `LDC.64 R2, c[0x4][R0]`.
    const LOAD: Word = Word(0x0100_0000_0002_7b82 | 0x0000_0a00 << 64);
    /// `IADD3 R6, P0, R1, UR4, RZ`, and `LDG.E R6, desc[UR4][R6.64]`.
    const ADD: Word = Word(0x0000_0004_0106_7c10 | 0x000f_e200_07f1_e0ff << 64);
    const READ: Word = Word(0x0000_0004_0606_7981 | 0x000e_a200_0c1e_1900 << 64);

    fn of(words: &[Word]) -> Option<u64> {
        let at = words.iter().position(|word| *word == LOAD).unwrap() * BYTES;
        of_loads(words, ARCH).get(&(at as u64)).copied()
    }

    #[test]
    fn a_number_is_known_up_to_what_may_change_it() {
        assert_eq!(of(&[mov(0, 0x68), LOAD]), Some(0x68));
        assert_eq!(of(&[mov(0, 0x68), ADD, mov(7, 9), LOAD]), Some(0x68));
        assert_eq!(of(&[mov(0, 0x68), mov(0, 0x78), LOAD]), Some(0x78));
        // Another register, none, or a load of another form.
        assert_eq!(of(&[mov(1, 0x68), LOAD]), None);
        assert_eq!(of(&[ADD, LOAD]), None);
        // What is not simple could write any.
        assert_eq!(of(&[mov(0, 0x68), READ, LOAD]), None);
        // The register behind the target, too, and the target of a move under a predicate.
        let wide = ADD.with(16, 8, 0);
        assert_eq!(of(&[mov(0, 0x68), wide, LOAD]), None);
        let perhaps = mov(0, 0x78).with(12, 3, 0);
        assert_eq!(of(&[mov(0, 0x68), perhaps, LOAD]), None);
        assert_eq!(of(&[mov(0, 0x68), branch(16, 32), LOAD]), None);
    }

    #[test]
    fn nothing_is_known_where_something_leads_in_between() {
        let line = [mov(0, 0x68), ADD, LOAD];
        assert_eq!(
            of(&[&line[..], &[branch(48, 64), ADD]].concat()),
            Some(0x68)
        );
        for to in [16, 32] {
            assert_eq!(of(&[&line[..], &[branch(48, to)]].concat()), None);
        }
        assert_eq!(of(&[&line[..], &[branch(48, 0)]].concat()), Some(0x68));
        // A function may come back where a number says; but for the number itself.
        assert_eq!(of(&[&line[..], &[mov(20, 16)]].concat()), None);
        assert_eq!(of(&[&line[..], &[mov(20, 0)]].concat()), Some(0x68));
        assert_eq!(of(&[mov(0, 16), ADD, LOAD]), Some(16));
        let jump = Word(u128::from(base::BRX) | 0x800);
        assert_eq!(of(&[&line[..], &[jump]].concat()), None);
    }
}

//! Loads and stores of global memory as `ptxas` writes them for `sm_90`: where the address is, how
//! much is moved, under which guard.
//!
//! The instruction itself is never written anew, so caches, scopes and descriptors need no names
//! here. What must be known is what a probe is told of, and every bit that could change that is
//! held to the value that it was seen with.

use crate::table::base;
use crate::word::{Predicate, Word};

/// Loads and stores, with a descriptor in a uniform register and a 64-bit address in two others.
const LDG: u16 = 0x981;
const STG: u16 = 0x986;
/// Bits that say nothing of address, size or guard, first and count: sectors to prefetch (`LDG`
/// only), scope, eviction.
const PREFETCH: (u32, u32) = (68, 2);
const SCOPE: (u32, u32) = (77, 4);
const EVICTION: (u32, u32) = (84, 3);
/// `.E` and the form with a descriptor.
const FORM: u128 = 0x0c00_1100 << 64;
/// Predicates that a load could write are none.
const NO_RESULT: u128 = 0x000e_0000 << 64;
/// The last register that a pair may begin with.
const LAST: u8 = 252;

/// A load or store of global memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Offset in the kernel's code.
    pub at: u64,
    /// It stores.
    pub is_store: bool,
    /// Bytes that a lane moves.
    pub bytes: u32,
    /// Lanes for which it holds.
    pub guard: Predicate,
    /// Low half of the address; the high half is in the next register.
    pub base: u8,
    /// What is added to it.
    pub offset: i32,
}

impl Access {
    /// A word that may be such an instruction.
    pub fn is_one(word: Word) -> bool {
        matches!(word.base(), base::LDG | base::STG)
    }

    /// Reads one. `None`: it is none, or of another form.
    pub fn read(at: u64, word: Word) -> Option<Access> {
        let is_store = word.opcode() == STG;
        if !is_store && word.opcode() != LDG {
            return None;
        }
        let bytes = match word.bits(73, 3) {
            0 | 1 => 1,
            2 | 3 => 2,
            4 => 4,
            5 => 8,
            6 => 16,
            _ => return None,
        };
        let access = Access {
            at,
            is_store,
            bytes,
            guard: Predicate::of(word.bits(12, 4)),
            base: word.bits(24, 8) as u8,
            offset: word.signed(40, 24),
        };
        // Register pairs begin with an even register, and R1 is the stack pointer.
        let pair = access.base.is_multiple_of(2) && (2..=LAST).contains(&access.base);
        (pair && access.rest(word) == access.fixed()).then_some(access)
    }

    /// What is left of the word without operands, modifiers and control word.
    fn rest(&self, word: Word) -> u128 {
        // Guard, address, offset, size, and what comes from outside of the operands.
        let all = [
            (12, 4),
            (24, 8),
            (40, 24),
            (73, 3),
            SCOPE,
            EVICTION,
            (105, 23),
        ];
        // Data and descriptor.
        let own: &[(u32, u32)] = match self.is_store {
            true => &[(32, 8), (64, 6)],
            false => &[(16, 8), (32, 6), PREFETCH],
        };
        let clear = |word: Word, (first, count): &(u32, u32)| word.with(*first, *count, 0);
        all.iter().chain(own).fold(word, clear).0
    }

    fn fixed(&self) -> u128 {
        match self.is_store {
            true => u128::from(STG) | FORM,
            false => u128::from(LDG) | FORM | NO_RESULT,
        }
    }

    /// What a probe is told, as Compute Sanitizer says it: 1 reads, 2 writes.
    pub fn flags(&self) -> u32 {
        if self.is_store { 2 } else { 1 }
    }
}

//! Reads a function's beginning and decides whether and how a jump fits behind its first
//! instruction.

use std::ops::Range;

use super::insn::{self, Insn, WORD, decode, leaves, mentions_ip, text};
use crate::error::{BeneathError, HookError};

/// How a function is hooked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Where the function is.
    pub(super) address: u64,
    /// Takes back what the first instruction did, if it did something that matters.
    pub(super) undo: Option<u32>,
    /// The first instruction and those under the jump.
    pub(super) displaced: Vec<u32>,
}

impl Plan {
    /// The jump takes the place of what stands first.
    pub(crate) fn replaces_start(&self) -> bool {
        self.jump_at() == self.address
    }

    /// Where the jump goes: behind the first instruction.
    pub(super) fn jump_at(&self) -> u64 {
        self.address + WORD
    }

    /// The first instruction that stays where it is.
    pub(super) fn resume(&self) -> u64 {
        self.address + WORD * self.displaced.len() as u64
    }

    /// The displaced instructions and where they stood.
    pub(super) fn placed(&self) -> impl Iterator<Item = (u64, u32)> {
        let places = (self.address..).step_by(WORD as usize);
        places.zip(self.displaced.iter().copied())
    }

    /// A call among the instructions that are moved.
    pub(crate) fn call(&self) -> Option<String> {
        let is_call = |at, word| matches!(decode(word, at), Insn::Call { .. } | Insn::CallRegister);
        let mut placed = self.placed();
        let found = placed.find(|(at, word)| is_call(*at, *word));
        found.map(|(at, word)| text(word, at))
    }

    /// A displaced instruction that may have to do with the registers that long jumps use.
    pub(super) fn mentions_ip(&self) -> Option<String> {
        let mut placed = self.placed();
        let found = placed.find(|(at, word)| mentions_ip(*word, *at));
        found.map(|(at, word)| text(word, at))
    }
}

/// Plans a hook by a jump of so many instructions for the function whose bytes `code` lie at
/// `address`. All of `code` is searched for branches into the displaced instructions, so it should
/// be the whole function.
pub(super) fn plan_of(address: u64, code: &[u8], jump: usize) -> Result<Plan, HookError> {
    let (words, _) = code.as_chunks();
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let place = |n: usize| address + WORD * n as u64;
    let insn = |n: usize| decode(words[n], place(n));
    let taken = |n: usize| HookError::Taken {
        text: text(words[n], place(n)),
    };
    if words.is_empty() || insn(0) == Insn::Unallocated {
        return Err(HookError::Undecodable { address });
    }
    match insn(0) {
        Insn::Breakpoint => {
            let source = BeneathError::Own;
            return Err(HookError::Breakpoint { source });
        }
        Insn::Branch { .. } => return Err(taken(0)),
        Insn::BranchRegister { .. } if words[0] & 0xffff_fc1f == insn::jump(0) => {
            return Err(taken(0));
        }
        _ => {}
    }
    if let Some(jump) = long_jump(&words, address) {
        return Err(taken(jump));
    }
    let first = HookError::First {
        text: text(words[0], address),
    };
    let undo = insn::undo(words[0], address).map_err(|()| first)?;
    for n in 1..=jump {
        let short = |words: usize| HookError::Short {
            bytes: words * WORD as usize,
            needs: jump * WORD as usize,
        };
        if n >= words.len() {
            return Err(short(n - 1));
        }
        match insn(n) {
            Insn::Unallocated => return Err(HookError::Undecodable { address: place(n) }),
            Insn::Branch { .. } if n == 1 => return Err(taken(n)),
            insn if leaves(insn) && n < jump => return Err(short(n)),
            _ => {}
        }
    }
    let plan = Plan {
        address,
        undo,
        displaced: words[..=jump].to_vec(),
    };
    match branch_into(address, &words, plan.jump_at()..plan.resume()) {
        Some(from) => Err(HookError::BranchedInto { from }),
        None => Ok(plan),
    }
}

/// A jump by a register that was set just before, at the very beginning or behind the first
/// instruction: where it stands.
fn long_jump(words: &[u32], address: u64) -> Option<usize> {
    let last = words.len().min(5);
    let jump = (1..last).find(|n| matches!(words[*n], w if w & 0xffff_fc1f == insn::jump(0)))?;
    let set = jump.saturating_sub(2);
    let is_set = |n: usize| {
        let here = decode(words[n], address + WORD * n as u64);
        matches!(here, Insn::Address { register, .. } | Insn::Load { register, .. }
            if insn::jump(register) == words[jump])
    };
    (set..jump).any(is_set).then_some(jump)
}

/// The first branch in the function that leads into `range`.
fn branch_into(address: u64, words: &[u32], range: Range<u64>) -> Option<u64> {
    let places = (address..).step_by(WORD as usize);
    let mut placed = places.zip(words);
    let found = placed.find(|(at, word)| match decode(**word, *at) {
        Insn::Branch { to } | Insn::Call { to } | Insn::Conditional { to, .. } => {
            range.contains(&to)
        }
        _ => false,
    });
    found.map(|(at, _)| at)
}

//! The bytes that the device runs.

use super::ops::Reg16;

/// Bytes of an instruction.
pub const INSTRUCTION: usize = 16;

/// An instruction: `op | dst << 8 | src << 16 | result << 24 | off << 32`, then the immediate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) op: u8,
    pub(super) dst: Reg16,
    pub(super) src: Reg16,
    /// Where the result goes.
    pub(super) result: Reg16,
    /// What is added to an address, or the number of the instruction that is jumped to.
    pub(super) off: i32,
    pub(super) imm: Imm,
}

/// An immediate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Imm {
    Value(u64),
    /// The address of a map, and bytes from there.
    Map(u32, u64),
    /// The address of the environment block.
    Env,
}

/// A program as the device runs it; only addresses of maps are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    pub(super) words: Vec<Word>,
}

impl Form {
    /// Bytes of it.
    pub fn size(&self) -> usize {
        (self.words.len() + 1) * INSTRUCTION
    }

    /// The bytes, for an environment block and maps at these addresses. `None` if one is missing.
    pub fn encode(&self, env: u64, maps: &[u64]) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.size());
        // How many instructions there are: nothing behind them is run.
        bytes.extend((self.words.len() as u64).to_le_bytes());
        bytes.extend([0; 8]);
        for word in &self.words {
            let Word {
                op,
                dst,
                src,
                result,
                off,
                ..
            } = *word;
            bytes.extend([op, dst.0, src.0, result.0]);
            bytes.extend(off.to_le_bytes());
            let imm = match word.imm {
                Imm::Value(value) => value,
                Imm::Env => env,
                Imm::Map(map, offset) => maps.get(map as usize)?.wrapping_add(offset),
            };
            bytes.extend(imm.to_le_bytes());
        }
        Some(bytes)
    }
}

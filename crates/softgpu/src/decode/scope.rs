//! Scopes: what a name in a body stands for.

use std::collections::HashMap;

use crate::op::operand::Row;

/// What a name means.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sym {
    Register {
        row: Row,
        bits: u32,
    },
    /// A vector register: rows in a row. A 128-bit register is one of two halves.
    Vector {
        row: Row,
        count: u32,
        bits: u32,
    },
    /// `.local` or `.param` variable of a function: bytes of the frame.
    Frame {
        offset: u32,
        size: u32,
    },
    /// Offset in the kernel's parameter block.
    KernelParam(u32),
    Shared(u32),
    DynamicShared,
    /// Address of a `.global` or `.const` variable.
    Memory(u64),
    /// Module function number.
    Function(u32),
    Opaque,
}

#[derive(Default)]
pub(crate) struct Scope<'a> {
    pub id: usize,
    /// Frame bytes in use when it was opened.
    pub frame: u32,
    pub(super) names: HashMap<&'a str, Sym>,
    /// `%r<7>`: prefix to what it declared.
    pub(super) counted: HashMap<&'a str, Counted>,
}

pub(super) struct Counted {
    pub(super) row: Row,
    pub(super) count: u32,
    pub(super) bits: u32,
    /// Rows per register: more than one for vectors.
    pub(super) lanes: u32,
}

impl Scope<'_> {
    pub(super) fn new(id: usize, frame: u32) -> Self {
        Scope {
            id,
            frame,
            names: HashMap::new(),
            counted: HashMap::new(),
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<Sym> {
        if let Some(&sym) = self.names.get(name) {
            return Some(sym);
        }
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
        // The prefix may itself end in digits: try every split.
        (prefix.len()..name.len()).find_map(|split| {
            let &Counted {
                row,
                count,
                bits,
                lanes,
            } = self.counted.get(&name[..split])?;
            let digits = &name[split..];
            let number: u32 = digits.parse().ok()?;
            let canonical = digits.len() == 1 || !digits.starts_with('0');
            if number >= count || !canonical {
                return None;
            }
            Some(match lanes {
                1 => Sym::Register {
                    row: row + number,
                    bits,
                },
                _ => Sym::Vector {
                    row: row + number * lanes,
                    count: lanes,
                    bits,
                },
            })
        })
    }
}

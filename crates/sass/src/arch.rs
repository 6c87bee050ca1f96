//! The architectures.

/// An architecture whose machine code is in [`table`](crate::table).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arch {
    /// A100.
    Sm80,
    /// H100, H200, GH200.
    Sm90,
}

impl Arch {
    /// By its number, e.g. 90.
    pub fn of(number: u32) -> Option<Arch> {
        match number {
            80 => Some(Arch::Sm80),
            90 => Some(Arch::Sm90),
            _ => None,
        }
    }

    /// Its number.
    pub fn number(self) -> u32 {
        match self {
            Arch::Sm80 => 80,
            Arch::Sm90 => 90,
        }
    }

    /// Distances of branches stand in two places of the instruction.
    pub(crate) fn splits_distances(self) -> bool {
        self == Arch::Sm90
    }

    /// How an instruction that waits for all lanes of a warp names them.
    pub(crate) fn all_lanes(self) -> u32 {
        match self {
            Arch::Sm80 => u32::MAX,
            // Without a mask it is for all.
            Arch::Sm90 => 0,
        }
    }

    /// Offset in constant bank 0 of a kernel's parameters.
    pub(crate) fn parameters(self) -> u32 {
        match self {
            Arch::Sm80 => 0x160,
            Arch::Sm90 => 0x210,
        }
    }

    /// Offset in constant bank 0 of the stack pointer that a thread begins with.
    pub(crate) fn stack_pointer(self) -> u32 {
        match self {
            Arch::Sm80 | Arch::Sm90 => 0x28,
        }
    }
}

//! A place in the code that a group of lanes stands at.

/// Where a group stands. Two groups with equal positions are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Position {
    /// First row of the frame.
    pub base: u32,
    /// First byte of the frame in local memory.
    pub local: u32,
    /// Function of the program.
    pub function: u32,
    /// Instruction of the function.
    pub pc: u32,
}

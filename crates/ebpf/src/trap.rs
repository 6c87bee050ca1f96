//! Why a program stopped early: what the guest does wrong is a value.

use crate::insn::{Pc, Width};

/// Deepest nesting of local calls, the entry function included.
pub const MAX_FRAMES: u32 = 8;

/// Why a program stopped early. The program is at fault, or asked for something that the machine
/// does not have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TrapKind {
    /// No memory there.
    #[error("{} of {} bytes at {address:#x}, where no memory is", if *write { "store" } else { "load" }, width.bytes())]
    OutOfBounds {
        /// First byte.
        address: u64,
        /// Size of the access.
        width: Width,
        /// Store or load.
        write: bool,
    },
    /// A store to read-only memory.
    #[error("store of {} bytes at {address:#x}, which is read-only", width.bytes())]
    ReadOnly {
        /// First byte.
        address: u64,
        /// Size of the access.
        width: Width,
    },
    /// An atomic whose address is not a multiple of its size.
    #[error("atomic of {} bytes at {address:#x}, which is not aligned to its size", width.bytes())]
    Misaligned {
        /// First byte.
        address: u64,
        /// Size of the access.
        width: Width,
    },
    /// More than [`MAX_FRAMES`] calls are open.
    #[error("more than {MAX_FRAMES} nested calls")]
    CallDepth,
    /// The instruction limit is used up.
    #[error("the limit of executed instructions is used up")]
    OutOfFuel,
    /// The machine gives it no more time.
    #[error("the time for one run is used up")]
    OutOfTime,
    /// Execution ran past the last instruction.
    #[error("execution runs past the end of the program")]
    PastEnd,
    /// `r10` was written.
    #[error("the frame pointer r10 is read-only")]
    FramePointer,
    /// The machine has no such helper.
    #[error("there is no helper {id}")]
    NoHelper {
        /// Its number.
        id: u32,
    },
    /// There is no such kernel function.
    #[error("there is no kernel function {id}")]
    NoKfunc {
        /// Its number ([`warpbpf_abi::kfuncs::KfuncId`]) or, before loading, its BTF id.
        id: u32,
    },
    /// The machine has no such map.
    #[error("there is no map {map}")]
    NoMap {
        /// Its index.
        map: u32,
    },
    /// A kernel variable.
    #[error("there is no kernel variable with BTF id {id}")]
    NoVariable {
        /// Its BTF id.
        id: u32,
    },
    /// A call through a register, where the machine knows none.
    #[error("call through a register to {value:#x}")]
    IndirectCall {
        /// The register's value.
        value: u64,
    },
    /// A helper was given a function address that is none.
    #[error("{value:#x} is not the address of a function")]
    NotAFunction {
        /// The value.
        value: u64,
    },
    /// `ld_abs` or `ld_ind`.
    #[error("legacy packet access")]
    LegacyPacket,
    /// A helper refuses its arguments.
    #[error("helper {id}: {reason}")]
    Helper {
        /// Its number.
        id: u32,
        /// Why.
        reason: &'static str,
    },
}

/// Where and why a program stopped early.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{pc}: {kind}")]
pub struct Trap {
    /// The instruction.
    pub pc: Pc,
    /// What happened.
    pub kind: TrapKind,
}

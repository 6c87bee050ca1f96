//! What the guest did wrong, as values. A trap names the kernel, block, thread and PTX line and
//! says what happened in words; faults of the emulator itself are errors of the functions that meet
//! them.

use std::fmt;

/// Why a guest thread was stopped. Whose fault: always the guest's, except
/// [`TrapKind::Unsupported`], which is a gap of the emulator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrapKind {
    /// An access outside of every live allocation (or of the block's shared or the thread's local
    /// memory).
    OutOfBounds {
        /// Address as the instruction formed it.
        address: u64,
        /// Bytes accessed.
        bytes: u32,
        /// State space of the instruction.
        space: &'static str,
        /// Load, store or atomic.
        access: &'static str,
    },
    /// An address that is not a multiple of the access size.
    Misaligned {
        /// Address as the instruction formed it.
        address: u64,
        /// Required alignment in bytes.
        bytes: u32,
    },
    /// `trap` was executed.
    TrapInstruction,
    /// `brkpt` was executed and no debugger is there.
    Breakpoint,
    /// A device-side `assert` failed.
    Assert,
    /// Calls nested too deeply or too much local memory.
    StackOverflow,
    /// An indirect call to something that is not a function of this module, or with another
    /// signature.
    InvalidCall,
    /// All threads wait and none can go on.
    Deadlock,
    /// A warp-synchronous instruction whose member mask does not hold the executing lane, or a bad
    /// barrier.
    InvalidSync,
    /// An instruction, modifier or extern function that the emulator does not have.
    Unsupported,
    /// A tensor map, texture or surface that is none, or does not fit the instruction.
    InvalidDescriptor,
    /// Device `free` of an address that `malloc` did not return.
    InvalidFree,
}

/// A guest trap: the launch is over, memory is as the threads left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trap {
    /// Mangled kernel name.
    pub kernel: String,
    /// `%ctaid` of the thread.
    pub block: [u32; 3],
    /// `%tid` of the thread.
    pub thread: [u32; 3],
    /// Function that holds the instruction (the kernel or a device function).
    pub function: String,
    /// Line of the instruction in the module's PTX text, from 1.
    pub ptx_line: u32,
    /// Source file and line, where the module has line information.
    pub source: Option<(String, u32)>,
    /// What kind of trap.
    pub kind: TrapKind,
    /// What happened, in words, without the place.
    pub message: String,
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        write!(
            f,
            "kernel `{}`, block ({bx},{by},{bz}), thread ({tx},{ty},{tz})",
            self.kernel
        )?;
        if self.function != self.kernel {
            write!(f, ", function `{}`", self.function)?;
        }
        write!(f, ", PTX line {}", self.ptx_line)?;
        if let Some((file, line)) = &self.source {
            write!(f, " ({file}:{line})")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// A trap before the place is known: raised where the lane is known, completed by the dispatch
/// loop.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub lane: u32,
    pub kind: TrapKind,
    pub message: String,
}

impl Fault {
    pub(crate) fn new(lane: u32, kind: TrapKind, message: impl Into<String>) -> Box<Fault> {
        Box::new(Fault {
            lane,
            kind,
            message: message.into(),
        })
    }
}

/// What executing an instruction can raise. Boxed: the good path should move one word.
pub(crate) type Exec<T> = Result<T, Box<Fault>>;

//! Why a verified program cannot be compiled for a place.

use warpbpf_ebpf::Pc;

/// A program or an environment that the code generator refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodegenError {
    /// The module's target has no scoped memory operations.
    #[error(
        "target `sm_{sm}` is older than `sm_70`, which is the first with scoped memory operations: compile the application for a newer GPU"
    )]
    TargetTooOld {
        /// Number in `.target`.
        sm: u32,
    },
    /// The module's PTX version has no `activemask`.
    #[error(
        "PTX version `{major}.{minor}` is older than 6.2, which is the first with `activemask`: compile the application with CUDA 9.2 or newer"
    )]
    PtxTooOld {
        /// Major number of `.version`.
        major: u32,
        /// Minor number of `.version`.
        minor: u32,
    },
    /// The environment binds fewer maps than the program names.
    #[error(
        "instruction `{pc}` uses map `{map}`, but the environment binds only `{bound}` maps: bind every map of the object"
    )]
    MapNotBound {
        /// The instruction.
        pc: Pc,
        /// Index of the map.
        map: u32,
        /// How many maps are bound.
        bound: usize,
    },
    /// A helper was called on a map whose layout does not serve it.
    #[error(
        "instruction `{pc}` calls `bpf_{helper}` on map `{map}`, whose layout does not serve it: give the map a fitting type"
    )]
    WrongLayout {
        /// The call.
        pc: Pc,
        /// Helper name without `bpf_`.
        helper: &'static str,
        /// Index of the map.
        map: u32,
    },
    /// `bpf_trace_printk` or `bpf_gpu_puts` without a ring to write to.
    #[error(
        "instruction `{pc}` calls `bpf_{helper}`, but the environment has no printk ring: bind one"
    )]
    NoPrintkRing {
        /// The call.
        pc: Pc,
        /// Helper name without `bpf_`.
        helper: &'static str,
    },
    /// A fact that the verifier owes is missing or of another kind: never the user's fault.
    #[error(
        "no usable proof for instruction `{pc}`: expected {expected}; this is a bug in the verifier or the code generator"
    )]
    MissingFact {
        /// The instruction.
        pc: Pc,
        /// What the code generator needed to know.
        expected: &'static str,
    },
    /// An instruction that no verified program contains.
    #[error("instruction `{pc}` ({what}) has no GPU code: rewrite the program without it")]
    Unsupported {
        /// The instruction.
        pc: Pc,
        /// Its kind.
        what: &'static str,
    },
    /// The memory of a program that runs by itself does not fit its stride.
    #[error(
        "a stride of `{stride}` bytes cannot hold the program's `{size}` bytes of memory and its result: make it a multiple of 16, at least `{least}`"
    )]
    BadStride {
        /// Bytes of memory.
        size: u32,
        /// Bytes from one thread's memory to the next one's.
        stride: u32,
        /// Smallest stride that serves.
        least: u64,
    },
    /// A program that is a kernel by itself aggregates over its block.
    #[error(
        "kernel `{kernel}` has no launch record, where its program counts the threads of blocks in {cells} cells: use the program at a kernel's start or end"
    )]
    NoLaunchRecord {
        /// Name of its `.entry`.
        kernel: String,
        /// Cells that each block would have.
        cells: u32,
    },
    /// A key or value that would need more call parameters than a device function may have.
    #[error(
        "instruction `{pc}` passes `{bytes}` bytes of key and value to a hash, more than the `{limit}` that a device function takes: use a smaller key or value, or look the value up and write its fields"
    )]
    HashArgumentTooLarge {
        /// The call.
        pc: Pc,
        /// Bytes of key and value.
        bytes: u64,
        /// Most bytes.
        limit: u64,
    },
}

//! Joins the parts: an object becomes a session, an image becomes instrumented kernels, device
//! memory becomes maps that a person can read.
//!
//! [`plan`] says what is to be done and asks no driver; it is told what device and what process it
//! is for. [`runtime`] does it in a context of the driver. [`cpu`] runs programs on the CPU.
//!
//! Layers, each uses only those to its right: `runtime → plan → cpu → code_cache → process`.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "the test's own files, which nobody closes"
    )
)]

pub mod plan;
pub mod runtime;

pub mod cpu;

mod code_cache;
mod process;

pub use code_cache::CodeCache;
pub use cpu::{CpuError, HostPlace, HostProgram};
pub use plan::image::{
    CompiledFrom, ImageError, ImageInfo, KernelSummary, inspect, inspect_compiled, kernel_names,
    machine_code,
};
pub use plan::replace::{Change as ProgramChange, ReplaceError};
pub use plan::slots::SlotError;
pub use plan::{
    Assembled, Filling, GateError, KernelError, LAUNCH_POOL, Means, PlannedProgram, Prepared,
    PreparedKernel, ProgramError, Session, SessionError, backends, choices, client, executable,
    image, in_ptx, listing, names, own, probe_text, replace, section, short_name, slots, splice,
};
pub use runtime::{
    Action, Allocation, Allocations, Answer, Calls, Change, Chunk, DrainStats, Fence, Growth,
    HostOp, HostOpsError, Kind, Landing, Live, LoadError, LoadedVariant, MapLayoutInfo, Part,
    Pause, PresetError, Progress, Readable, Resources, RingEvent, Room, Standing, Taken, Unwritten,
    UserRing, UserRingError, clock, launch_args,
};
pub use warpbpf_abi::maps::Placement;
pub use warpbpf_abi::method::Method;
pub use warpbpf_abi::options::Options;
pub use warpbpf_sanitizer::{Sanitizer, SanitizerError};
pub use warpbpf_sass::Arch;
pub use warpbpf_verify::{HelperUse, SourceLine, helpers_used, map_def};

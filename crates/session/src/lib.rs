//! Joins the parts: an object becomes a session, an image becomes instrumented kernels, device
//! memory becomes maps that a person can read.
//!
//! Reading order: what is asked for ([`section`], [`plan`], [`replace`]), what is there
//! ([`executable`], [`image`], [`names`], [`listing`]), what is made of both ([`prepare`], [`own`],
//! [`splice`]), and its life on a device ([`live`], `growth`, [`variant`], [`resources`],
//! [`clock`], `tensor_maps`). Only the last six touch a driver.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "the test's own files, which nobody closes"
    )
)]

pub mod names;
pub mod section;
pub mod short_name;

mod planned;
mod session;
mod session_error;

pub mod choices;
pub mod plan;
pub mod replace;

mod embedded_ptx;
pub mod executable;
pub mod image;
pub mod in_ptx;

mod assembled;
pub mod backends;
mod kernel_error;
pub mod listing;
mod load_error;
mod machine;
mod means;
pub mod own;
mod patched;
pub mod prepare;
mod prepared;
pub mod preset;
mod probe;
mod ptx_version;
mod sites;
pub mod splice;
mod texts;

mod code_cache;
mod compile;
mod footprint;
mod ground;
mod grown;
mod growth;
mod held;
mod host_memory;
mod standing;

pub mod allocations;

pub mod calls;
pub mod client;
pub mod clock;
pub mod compaction;
pub mod cpu;
mod device_gate;
mod device_slots;
pub mod drain;
mod gate;
pub mod host_ops;
pub mod launch_args;
mod launch_records;
pub mod live;
mod process;
mod readers;
pub mod resources;
pub mod slots;
mod tensor_maps;
pub mod user_ring;
pub mod variant;

#[cfg(test)]
mod fuzz;
mod warnings;

pub use allocations::{Allocation, Allocations, Fence, Kind, Readable, Taken};
pub use assembled::Assembled;
pub use calls::{Calls, Pause};
pub use code_cache::CodeCache;
pub use cpu::{CpuError, HostPlace, HostProgram};
pub use device_slots::Unwritten;
pub use drain::{Chunk, DrainStats, Landing, Part, RingEvent};
pub use gate::GateError;
pub use growth::Growth;
pub use host_ops::error::HostOpsError;
pub use host_ops::{Action, Answer, HostOp, Progress};
pub use image::{
    CompiledFrom, ImageError, ImageInfo, KernelSummary, inspect, inspect_compiled, kernel_names,
    machine_code,
};
pub use kernel_error::{KernelError, ProgramError};
pub use live::{Live, MapLayoutInfo};
pub use load_error::LoadError;
pub use means::Means;
pub use planned::PlannedProgram;
pub use session::{Filling, Session};
pub use session_error::SessionError;

pub use launch_records::LAUNCH_POOL;
pub use prepared::{Prepared, PreparedKernel};
pub use preset::PresetError;
pub use probe::probe_text;
pub use replace::{Change as ProgramChange, ReplaceError};
pub use resources::{Change, Resources, Room};
pub use slots::SlotError;
pub use standing::Standing;
pub use user_ring::{UserRing, UserRingError};
pub use variant::LoadedVariant;
pub use warpbpf_abi::maps::Placement;
pub use warpbpf_abi::method::Method;
pub use warpbpf_abi::options::Options;
pub use warpbpf_sanitizer::{Sanitizer, SanitizerError};
pub use warpbpf_sass::Arch;
pub use warpbpf_verify::{HelperUse, SourceLine, helpers_used, map_def};

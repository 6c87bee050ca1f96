//! The engine of tools: listens for agents, tells them what to do, keeps what they say, reads and
//! changes maps, and serves other commands of the same user.
//!
//! This is for our own crates: the command line and `warpbpf`, the library for everybody, which
//! shows a part of it.
//!
//! Layers, each uses only those to its right: `tool → live → control → handles → heard → start →
//! machine → system`.

#![deny(missing_docs)]

pub mod control;
mod error;
mod handles;
mod heard;
pub mod live;
mod lock;
pub mod machine;
mod object;
pub mod start;
mod system;
mod tool;

pub use control::{Control, SessionInfo};
pub use error::{Error, errno_text};
pub use handles::map::{Entry, Map, Snapshot};
pub use handles::process::{KernelInfo, Process};
pub use handles::replace::REPLACE_LIMIT;
pub use handles::typed::{Plain, Queue, TypedMap};
pub use heard::events::{Event, Losses, Message};
pub use heard::functions::{Function, Functions};
pub use heard::note::Note;
pub use heard::plan::{plan_of, untyped_map};
pub use heard::replacement::{Replaced, Replacement};
pub use live::{AttachError, Change, CudaProcess};
pub use machine::{Device, DeviceChoice};
pub use object::Object;
pub use start::Inject;
pub use system::folders::runtime_folder;
pub use tool::{App, Launch, Tool};
pub use warpbpf_abi::choice::{Choice, ChoiceError, ChoiceKey, ChoiceRequest, StreamPick};
pub use warpbpf_abi::maps::{MapType, Placement};
pub use warpbpf_abi::method::{Method, NoMethod};
pub use warpbpf_abi::options::Options;
pub use warpbpf_ebpf::{DecodeError, DecodeErrorKind};
pub use warpbpf_maps::{AccessError, Counters, Value};
pub use warpbpf_object::{BtfError, CoreError, FunctionDecodeError, ObjectError, SetError, TypeId};
pub use warpbpf_wire::{
    CacheRequest, ContextInfo, GraphLaunch, GraphNode, GraphNodes, HostModule, HostStack,
    HostStacks, Kernel, Layout, MapInfo, MapOp, NoteLevel, Occupancy, OpCode, Operation,
    Operations, OpsError, Outcome, Program, Range, RangeKind, Ranges, RangesLost, SharedError,
    SumField, Untimed, WireError,
};

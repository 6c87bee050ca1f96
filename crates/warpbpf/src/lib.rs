//! eBPF programs inside GPU kernels, from Rust: start an application or wait for one, put programs
//! into its kernels, read and change their maps while it runs, and poll their events.
//!
//! ```no_run
//! use std::time::Duration;
//! use warpbpf::{Launch, Object, Tool};
//!
//! let tool = Tool::attach(Object::open("counter.bpf.o")?, warpbpf::Options::default())?;
//! let mut app = tool.start(&Launch::new(["./vectoradd"]))?;
//! let process = app.wait_ready(Duration::from_secs(30))?;
//! let counts = process.map("counts")?.typed::<u32, u64>()?;
//! app.wait()?;
//! for (kernel, launches) in counts.entries()? {
//!     println!("{kernel}: {launches}");
//! }
//! # Ok::<(), warpbpf::Error>(())
//! ```
//!
//! A [`Tool`] listens; a thread of it talks to the agents in applications. Each application that
//! uses CUDA becomes a [`Process`], and each map of the object a [`Map`] in it. Both are handles:
//! cheap to clone, usable from any thread, and still readable when the application has ended. An
//! application that somebody else starts needs the variables of [`Tool::environment`].
//!
//! What a read sees while kernels run stands in the documentation of map types (`docs/maps.md`).
//! Changes of arrays are copies. Changes of hashes, queues and the like are made by a small kernel,
//! so that they are one step for the application's lanes too; for them [`Options::host_ops`] must
//! be set when the tool is made.

#![deny(missing_docs)]

pub mod live;
pub mod machine;
pub mod start;

mod error;

mod agreed;
mod bounds;
mod object;

mod choose;
mod client;
mod client_views;
mod events;
mod functions;
mod handshake;
mod kept;
mod launches;
mod map;
mod number;
mod process;
mod replace;
mod seen;
mod silence;
mod state;
mod sweep;
mod tool;
mod typed;

pub mod control;

pub use control::{Control, SessionInfo};
pub use error::{Error, errno_text};
pub use events::{Event, Losses, Message};
pub use functions::{Function, Functions};
pub use live::{AttachError, Change, CudaProcess};
pub use machine::{Device, DeviceChoice};
pub use map::{Entry, Map, Snapshot, plan_of, untyped_map};
pub use object::Object;
pub use process::{KernelInfo, Note, Process};
pub use replace::{REPLACE_LIMIT, Replaced, Replacement};
pub use start::Inject;
pub use tool::{App, Launch, Tool, runtime_folder};
pub use typed::{Plain, Queue, TypedMap};
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

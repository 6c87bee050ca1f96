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

pub use warpbpf_abi::choice::{Choice, ChoiceError, ChoiceKey, ChoiceRequest, StreamPick};
pub use warpbpf_abi::maps::{MapType, Placement};
pub use warpbpf_abi::method::{Method, NoMethod};
pub use warpbpf_abi::options::Options;
pub use warpbpf_ebpf::{DecodeError, DecodeErrorKind};
pub use warpbpf_maps::{AccessError, Counters, Value};
pub use warpbpf_object::{BtfError, CoreError, FunctionDecodeError, ObjectError, SetError, TypeId};
pub use warpbpf_tool::start::{Surroundings, Variables};
pub use warpbpf_tool::{
    App, AttachError, Change, CudaProcess, Device, DeviceChoice, Entry, Error, Event, Function,
    Functions, Inject, KernelInfo, Launch, Losses, Map, Message, Note, Object, Plain, Process,
    Queue, REPLACE_LIMIT, Replaced, Replacement, Snapshot, Tool, TypedMap, errno_text,
};
pub use warpbpf_wire::{
    CacheRequest, ContextInfo, GraphLaunch, GraphNode, GraphNodes, HostModule, HostStack,
    HostStacks, Kernel, Layout, MapInfo, MapOp, NoteLevel, Occupancy, OpCode, Operation,
    Operations, OpsError, Outcome, Program, Range, RangeKind, Ranges, RangesLost, SharedError,
    SumField, Untimed, WireError,
};

//! What the agent in the target and a tool outside say to each other.
//!
//! Two channels, for two needs. A unix stream socket carries messages ([`message`]): who is there,
//! attach, which kernels were found, what went wrong. A shared memfd ([`SharedWriter`],
//! [`SharedReader`]) carries data: a consistent snapshot of every map and a byte ring of events.
//! Data goes through memory so that neither side can block the other, and so that everything
//! written before one of them dies is still there for the other.
//!
//! The agent connects, the tool listens. Both check that the other one runs as the same user.

pub mod inside;
pub mod late;
pub mod message;
pub mod rendezvous;

mod change;
mod connection;
mod given;
mod layout;
mod listener;
mod ops;
mod peer;
mod session;
mod shared;
mod timeline;
mod words;

#[cfg(test)]
mod fuzz;

pub use change::{Change, Changed, Refusal};
pub use connection::{
    AgentConnection, Connection, Frame, MOST_BLOB, Message, ToolConnection, WireError,
    connect_to_own,
};
pub use given::{Given, Giver, Taker};
pub use layout::{Layout, SumField};
pub use listener::{Acceptor, Listener};
pub use message::{
    CacheRequest, ClientCounts, Counts, HANDSHAKE, Hello, Kernel, KernelCount, MOST_CLIENTS,
    NoteLevel, Occupancy, PROTOCOL, Ready, Sites, ToAgent, ToTool,
};
pub use ops::{
    MapOp, OpCode, OpsError, Outcome, decode_ops, decode_outcomes, encode_ops, encode_outcomes,
};
pub use peer::{Peer, peer};
pub use session::{ContextInfo, Device, MapInfo, MoreMaps, Program};
pub use shared::{
    Chunks, DEFAULT_RING_BYTES, DeviceLosses, Event, Kept, LastCopy, LaunchKind, LaunchReader,
    LaunchRow, LaunchWriter, Launches, Missing, PRINTK, SNAPSHOT_PART, SharedError, SharedReader,
    SharedWriter, Span,
};
pub use timeline::{
    GraphLaunch, GraphNode, GraphNodes, HostModule, HostStack, HostStacks, Operation, Operations,
    Range, RangeKind, Ranges, RangesLost, Untimed,
};
pub use warpbpf_abi::choice::{Choice, ChoiceError, ChoiceRequest, StreamPick};
pub use warpbpf_abi::maps::Placement;
pub use warpbpf_abi::method::{Method, NoMethod};
pub use warpbpf_abi::options::Options;

//! What commands and second tools ask of a tool, and what they are answered.

use serde::{Deserialize, Serialize};
use warpbpf_wire::{Connection, ContextInfo, MOST_BLOB, MapInfo, Message, Options};

use crate::error::Error;

/// Name of the socket in a session's folder.
pub(super) const SOCKET: &str = "maps";
/// How the folders of sessions begin.
pub(super) const FOLDER: &str = "warpbpf-";

/// What a command asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Request {
    /// What is there.
    Session,
    /// The shared memory of a process, in one of its contexts.
    Memory {
        /// Which one.
        process: u32,
        /// The place in [`ProcessInfo::contexts`].
        #[serde(default)]
        context: u32,
        /// That of the first maps, or of those that came by the first replacement that brought
        /// some, and so on.
        #[serde(default)]
        part: u32,
    },
    /// Operations on a map; the blob is a batch.
    MapOps {
        /// Which one.
        process: u32,
        /// Index of the map.
        map: u32,
    },
    /// Programs are to be replaced.
    Replace(ReplaceRequest),
    /// A second tool wants to have programs in an application; the blob is the object file.
    Join(Box<JoinRequest>),
}

/// What it is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Reply {
    /// To [`Request::Session`]; the blob is the object file.
    Session(SessionInfo),
    /// To [`Request::Memory`]; the descriptor is the memory's.
    Memory {
        /// How many parts there are.
        #[serde(default)]
        parts: u32,
    },
    /// To [`Request::MapOps`]; the blob holds the outcomes.
    MapOps {
        /// Why there are none.
        error: Option<String>,
    },
    /// To [`Request::Replace`]: as [`Replaced`].
    Replaced {
        /// How many sets of programs there were.
        generation: u64,
        /// The programs that are there now.
        programs: Vec<String>,
        /// Kernels that run without, and why.
        without: Vec<(String, String)>,
        /// Programs in slots.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        slots: Vec<String>,
    },
    /// To [`Request::Join`]; the descriptor is the second tool's connection, at whose other end is
    /// what an agent would be.
    Joined {
        /// Its number.
        client: u32,
    },
    /// It cannot be answered.
    Failed {
        /// Why.
        message: String,
        /// Linux's number for it, negative.
        errno: i32,
    },
}

/// A session of some tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Process id of the tool.
    pub tool: u32,
    /// What it started, if it did.
    pub command: Vec<String>,
    /// Name of the object.
    pub object: String,
    /// The applications in it.
    pub processes: Vec<ProcessInfo>,
}

/// An application in a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessInfo {
    /// What requests call it.
    pub process: u32,
    /// Its process id, as the tool sees it.
    pub pid: u32,
    /// Its process id as it sees itself, where that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_pid: Option<u32>,
    /// Path of its executable.
    pub exe: String,
    /// It still runs.
    pub running: bool,
    /// Its maps, in the object's order; empty before they exist.
    pub maps: Vec<MapInfo>,
    /// Names of kernels by number.
    pub kernels: Vec<String>,
    /// Names of sites by number.
    pub sites: Vec<String>,
    /// The contexts that have maps of their own, in their order.
    #[serde(default)]
    pub contexts: Vec<ContextInfo>,
    /// The programs in its kernels.
    #[serde(default)]
    pub programs: Vec<ProgramInfo>,
    /// How many sets of programs it has had.
    #[serde(default)]
    pub generation: u64,
    /// Other tools that have programs in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientInfo>,
}

impl Message for Request {
    fn most_blob(&self) -> usize {
        MOST_BLOB
    }
}

impl Message for Reply {
    fn most_blob(&self) -> usize {
        MOST_BLOB
    }
}

/// What a command wants of programs; the request's blob is the object file, if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplaceRequest {
    /// Which application.
    pub process: u32,
    /// What is to become of its programs.
    pub change: warpbpf_wire::Change,
    /// What messages call the object.
    pub name: String,
    /// Milliseconds that it may take.
    pub limit_ms: u64,
}

/// A program in an application's kernels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramInfo {
    /// Name of the C function.
    pub name: String,
    /// Its section.
    pub section: String,
    /// Launches of kernels with it, since the last replacement of programs: those that it is not in
    /// itself, too, where others of its kernel are.
    pub launches: u64,
}

/// What a second tool wants; the request's blob is the object file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// Which application.
    pub process: u32,
    /// The second tool's process.
    pub tool: u32,
    /// What messages call the object.
    pub name: String,
    /// How its programs are proved, and which launches they are in. All else is as for the tool
    /// that is asked.
    pub options: Options,
    /// Milliseconds that it may take.
    pub limit_ms: u64,
}

/// A second tool that has programs in an application.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientInfo {
    /// Its number: names of its programs and maps have `@c` and that behind them.
    pub client: u32,
    /// Its process.
    pub tool: u32,
    /// Name of its object.
    pub object: String,
}

pub(super) type ServerConnection = Connection<Reply, Request>;
pub(super) type RequesterConnection = Connection<Request, Reply>;

/// As the one who asked is told.
pub(super) fn failed(error: &Error) -> Reply {
    Reply::Failed {
        message: error.to_string(),
        errno: error.errno(),
    }
}

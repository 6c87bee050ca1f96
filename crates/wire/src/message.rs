//! The messages. JSON, so that a recording can be read by a person and a field can be added without
//! a new protocol.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::change::{Change, Changed};
use crate::session::{ContextInfo, Device, MapInfo, MoreMaps, Program, is_none};
use crate::timeline::{HostStacks, Operations, Ranges};
use warpbpf_abi::method::Method;
use warpbpf_abi::options::Options;

/// Raised when a message comes or changes its meaning. [`Hello`] carries it; a tool refuses an
/// agent of another number.
pub const PROTOCOL: u32 = 6;
/// Second tools that there may be at once in one application.
pub const MOST_CLIENTS: usize = 32;
/// How long an application's first load waits for the tool's request, and again for what comes
/// behind each function that the tool has made.
pub const HANDSHAKE: Duration = Duration::from_secs(10);

/// From a tool to the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(
    clippy::large_enum_variant,
    reason = "the largest is the first of a connection, and none are kept in numbers"
)]
pub enum ToAgent {
    /// Put a program into the kernels. The frame's blob is the BPF object file, or empty if only
    /// operations are to be told ([`Options::timeline`]).
    Attach {
        /// How.
        options: Options,
    },
    /// Report kernels, change nothing.
    Observe,
    /// All launches run the original from now on.
    Detach,
    /// Bring the shared area up to date now, then answer with [`ToTool::Snapshotted`] of the same
    /// token.
    Snapshot {
        /// Chosen by the tool.
        token: u64,
    },
    /// As `Snapshot`, once the kernels with second tools' programs that were launched so far have
    /// ended, or a note has said that this could not be known; answered as that is.
    Drain {
        /// Chosen by the tool.
        token: u64,
    },
    /// A second tool that has gone has all that it wanted to know: nothing is told of it any more.
    Forget {
        /// Its number.
        client: u32,
    },
    /// Before `Attach`: operations on a map before any kernel runs. The frame's blob is a batch
    /// ([`crate::encode_ops`]) of updates. What cannot be done makes the attach fail.
    Preset {
        /// The map's name.
        map: String,
    },
    /// Before `Attach`, and before a `Change` for all programs that there will be: a function for
    /// machine code ([`Options::splice`]). The frame's blob is the cubin that `ptxas` made of its
    /// text.
    Probe {
        /// The text, by which it is found.
        text: String,
        /// Why there is no cubin.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Before `Attach`: Compute Sanitizer calls the functions that `Probe` brought, at accesses of
    /// memory, barriers and calls, too.
    Sanitize,
    /// Before `Attach`: what is to become of compiled code, if the application's environment is not
    /// to decide.
    Cache(CacheRequest),
    /// Operations on a live map. The frame's blob is a batch ([`crate::encode_ops`]); answered by
    /// [`ToTool::MapOps`].
    MapOps {
        /// Chosen by the tool.
        token: u64,
        /// Index in [`Ready::maps`].
        map: u32,
    },
    /// Replace programs. The frame's blob is the BPF object file, if there is one; answered by
    /// [`ToTool::Changed`].
    Change {
        /// Chosen by the tool.
        token: u64,
        /// How.
        change: Change,
        /// Milliseconds after which it is given up if the new programs are not in.
        limit_ms: u64,
    },
}

/// From the agent to a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToTool {
    /// First message of a connection.
    Hello(Hello),
    /// Before `Ready`: launches are counted in memory that is shared ([`crate::LaunchReader`]),
    /// whose memfd the frame carries.
    Launches,
    /// The answer to `Attach` when nothing will be injected: no `Ready` follows.
    Refused {
        /// Why, complete: the verifier's text where it was the verifier.
        message: String,
    },
    /// The answer to `Attach` once a context exists. The frame carries the shared memfd of the maps
    /// there.
    Ready(Ready),
    /// A further context has maps, the same ones in memory of its own. The frame carries the shared
    /// memfd of these.
    Context(ContextInfo),
    /// Before the `Changed` of a replacement that brought maps: those in one context. The frame
    /// carries the shared memfd of these.
    Maps(MoreMaps),
    /// The agent came into a process that ran already, and from now on sees each launch, of what
    /// was loaded before too.
    Attached,
    /// Something of the agent failed in a way that nobody thought of, which a note tells of: its
    /// good-bye does not mean that all is there.
    Failed,
    /// A kernel was loaded. Sent once per image and kernel.
    Kernel(Kernel),
    /// Names of sites, before any program there runs.
    Sites(Sites),
    /// Something a person should know.
    Note {
        /// How bad.
        level: NoteLevel,
        /// One or more lines.
        text: String,
        /// The second tools ([`ClientCounts::client`]) to which alone this is news; all tools if
        /// there is none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        clients: Vec<u32>,
    },
    /// Launches so far; sent when they changed.
    Counts(Counts),
    /// Operations of the device that have ended ([`Options::timeline`]).
    Operations(Operations),
    /// Ranges that have ended, with [`Options::timeline`]; at the end, all.
    Ranges(Ranges),
    /// Stacks on the CPU ([`Options::stacks`]).
    Stacks(HostStacks),
    /// The answer to `Snapshot` and `Drain`.
    Snapshotted {
        /// The request's.
        token: u64,
    },
    /// The answer to `MapOps`. The frame's blob holds an outcome for each operation
    /// ([`crate::decode_outcomes`]).
    MapOps {
        /// The request's.
        token: u64,
        /// Why nothing was done, if the request as a whole cannot be served; then the blob is
        /// empty.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// The answer to `Change`, once launches run what was asked for.
    Changed(Changed),
    /// Before the good-bye, from time to time while kernels are waited for.
    Leaving {
        /// The driver says nothing until they have, so nothing is said meanwhile.
        silent: bool,
    },
    /// Last message; the shared area is final.
    Bye {
        /// `exit`, `the context was destroyed`, `detached`.
        reason: String,
    },
}

/// What a user said of compiled code that is kept from one process to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheRequest {
    /// A folder's absolute path, or `off`; what the application's environment says when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Bytes that it may have; 512 MiB when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// Who connected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`] of the agent.
    pub protocol: u32,
    /// Process id in the namespace of who says it: the agent, or a tool that speaks of it to its
    /// client.
    pub pid: u32,
    /// Path of the executable.
    pub exe: String,
    /// Its arguments.
    pub argv: Vec<String>,
    /// The device, unless the agent says hello only to refuse.
    pub device: Option<Device>,
}

impl Hello {
    /// Why a tool of this version does not take this agent, if so.
    pub fn refusal(&self) -> Option<String> {
        let theirs = self.protocol;
        (theirs != PROTOCOL).then(|| {
            format!(
                "the agent in process {} is of another warpbpf: its messages are of version {theirs}, and this tool's of version {PROTOCOL}; use the tool that came with it, or start the application anew",
                self.pid
            )
        })
    }
}

/// The session stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// The session's maps in order; index `i` is area `i` of the shared memory.
    pub maps: Vec<MapInfo>,
    /// Its programs in order.
    pub programs: Vec<Program>,
    /// To a second tool: the areas of its maps in the shared memory, which is that of all tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub areas: Vec<u32>,
    /// Where these maps are.
    #[serde(default)]
    pub context: ContextInfo,
}

/// Names that a session gave to sites in the middle of kernels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sites {
    /// Number of the first; the others follow it.
    pub first: u32,
    /// For people.
    pub names: Vec<String>,
}

/// A kernel and what was done with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// What programs read as `kernel_id`, if the session numbered it.
    pub kernel_id: Option<u32>,
    /// Name in the image.
    pub mangled: String,
    /// For people.
    pub demangled: String,
    /// Where its code came from: `PTX sm_90 in a fatbin (zstd)`.
    pub source: String,
    /// Registers per thread of the original.
    pub registers_before: Option<u32>,
    /// Registers per thread with probes.
    pub registers_after: Option<u32>,
    /// Blocks that one SM runs at once, before and after; absent unless it runs with probes.
    #[serde(default)]
    pub occupancy: Option<Occupancy>,
    /// Bytes of local memory per thread (stack frame and spills), before and after.
    #[serde(default)]
    pub local_bytes: Option<(u32, u32)>,
    /// Bytes of static shared memory of a block, before and after.
    #[serde(default)]
    pub shared_bytes: Option<(u32, u32)>,
    /// What the compiler warns of only with probes.
    #[serde(default)]
    pub compiler_warnings: Vec<String>,
    /// Its code with probes was in the cache of compiled code; absent without a cache, and where it
    /// is in the application's module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<bool>,
    /// Microseconds that it took to make its code machine code and load it; absent where that is in
    /// the application's module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded_us: Option<u64>,
    /// Sites in its middle that have a program.
    #[serde(default)]
    pub sites: u32,
    /// Sites that a program wanted and did not get: how many, for each reason.
    #[serde(default)]
    pub left_out: Vec<(String, u32)>,
    /// Programs that match it, by index, and at how many places each stands in it; empty where no
    /// code was made for it.
    #[serde(default)]
    pub placed: Vec<(usize, u32)>,
    /// How it got them, or why it has none.
    pub method: Method,
    /// It runs with probes.
    pub instrumented: bool,
    /// Indices of the programs that match it.
    pub programs: Vec<usize>,
    /// The set of programs that this is about, counted from 1; 0 from an older agent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub generation: u64,
    /// The second tool ([`ClientCounts::client`]) to which alone this is news: its programs are not
    /// in the kernel, and those of others are as they were.
    #[serde(default, skip_serializing_if = "is_none")]
    pub client: u32,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Blocks that one SM runs at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occupancy {
    /// Threads of a block that this is about.
    pub block_threads: u32,
    /// Blocks of the original.
    pub before: u32,
    /// Blocks with probes.
    pub after: u32,
}

/// How bad a note is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoteLevel {
    /// Worth knowing.
    Info,
    /// Data is missing or a kernel is not instrumented.
    Warning,
    /// The agent gave up.
    Error,
}

/// Launches of kernels that programs match, since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// One per kernel.
    pub kernels: Vec<KernelCount>,
    /// The same as each tool has them, where there are, or were, several: of second tools those
    /// that are not forgotten ([`ToAgent::Forget`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientCounts>,
}

/// Launches as one of several tools would be told them if it were alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCounts {
    /// The number of a second tool ([`crate::Change::Join`]); 0 is the one that the agent speaks
    /// to.
    pub client: u32,
    /// One per kernel; of a second tool, those that its programs match.
    pub kernels: Vec<KernelCount>,
}

/// Launches of one kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelCount {
    /// Name in the image.
    pub mangled: String,
    /// With probes.
    pub launches: u64,
    /// Of the original, although a program matches.
    pub uninstrumented: u64,
    /// Of the original, because the user wanted no probes in them ([`Options::choice`]).
    #[serde(default)]
    pub skipped: u64,
    /// Those with probes by the number of the context that they were in.
    #[serde(default)]
    pub contexts: Vec<(u32, u64)>,
    /// Of the original, because no program that was in force then wanted it, and one did before or
    /// does now.
    #[serde(default)]
    pub unwanted: u64,
    /// Those with probes by the set of programs that they ran, of the last few sets
    /// ([`Changed::generation`]).
    #[serde(default)]
    pub generations: Vec<(u64, u64)>,
    /// Those in which each program ran, by its name; empty where all programs were in all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<(String, u64)>,
    /// The same by the number of the context.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context_programs: Vec<(u32, Vec<(String, u64)>)>,
}

#[cfg(test)]
mod tests;

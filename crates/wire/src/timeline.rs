//! What the device did for the application, and when: one record for each operation that was put
//! into a stream.

use serde::{Deserialize, Serialize};

/// An operation. Times are CLOCK_MONOTONIC in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Counts from 1, in the order in which they were asked for.
    pub id: u64,
    /// The function that was called: `cuMemcpyHtoDAsync`.
    pub api: String,
    /// `copy`, `fill`, `kernel`, `graph`, `host function`, `order` or `memory`.
    pub kind: String,
    /// The thread that called.
    pub thread: u32,
    /// Number of the context among those that have maps.
    pub context: u32,
    /// Handle of the stream; 1 is the default stream, 2 the thread's own.
    pub stream: u64,
    /// Number of the stream among those that the process made, from 1; 0 for the default stream and
    /// those of threads.
    #[serde(default)]
    pub stream_number: u64,
    /// When it was called, and when the driver came back.
    pub called: (u64, u64),
    /// When the device began and ended, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<(u64, u64)>,
    /// Bytes that are copied or filled, if the call said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The kernel's name in its image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Number of the launch, as programs in the kernel have it; 0 without programs there.
    #[serde(default)]
    pub launch: u64,
    /// The NVTX ranges that its thread was in, from the outermost in: `step/forward`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvtx: Option<String>,
    /// Number of the stack that it was called from ([`HostStack::number`]); 0 if that is not known.
    #[serde(default)]
    pub stack: u32,
    /// Of a graph's launch which it is, if the graph is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<GraphLaunch>,
}

/// A launch of an executable graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphLaunch {
    /// Counts from 1 as the process instantiates graphs. What programs in its kernels have in the
    /// upper half of `bpf_gpu_graph_node()`.
    pub graph: u32,
    /// Which of its launches, from 1.
    pub launch: u64,
    /// Number of the list that says what its kernels were ([`GraphNodes::number`]); 0 if there was
    /// no room for that.
    pub list: u32,
}

/// The kernels of an executable graph, from when they came to be those until another list of the
/// same graph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphNodes {
    /// From 1, in all graphs of the process.
    pub number: u32,
    /// The graph.
    pub graph: u32,
    /// In the order of `cuGraphGetNodes`, those of graphs in it in their places.
    pub nodes: Vec<GraphNode>,
}

/// A kernel in an executable graph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphNode {
    /// Counts the graph's kernels from 0. What programs in it have in the lower half of
    /// `bpf_gpu_graph_node()`.
    pub node: u32,
    /// The kernel's name in its image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// It runs with programs; else it is the original.
    #[serde(default)]
    pub programs: bool,
    /// The `launch_id` that programs in it have; 0 where none needs launch arguments.
    #[serde(default)]
    pub launch: u64,
    /// The application has turned it off, and it does not run.
    #[serde(default)]
    pub disabled: bool,
}

/// Records, and what there is to know of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operations {
    /// In any order.
    pub operations: Vec<Operation>,
    /// By how many nanoseconds times of the device may be off.
    pub error: u64,
    /// Operations so far whose times on the device are not known.
    pub untimed: Untimed,
    /// What the kernels of graphs are: lists that are new. A long one comes in parts, which follow
    /// one another and have its number each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graphs: Vec<GraphNodes>,
    /// Lists so far that there was no room for.
    #[serde(default)]
    pub unlisted: u64,
}

/// Why times on the device are not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untimed {
    /// More were under way than there are marks for.
    pub crowded: u64,
    /// They were captured into a graph, and are part of its launches.
    pub captured: u64,
    /// The driver refused a mark, or the context ended first.
    pub refused: u64,
}

/// A range of the application, marked by NVTX.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// As the application calls it.
    pub name: String,
    /// The name of its domain, if it is not NVTX's own one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// The thread that began it.
    pub thread: u32,
    /// What it is of.
    pub kind: RangeKind,
    /// When it began.
    pub begin: u64,
    /// When it ended; absent if it was open at the end of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<u64>,
}

/// What a range is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RangeKind {
    /// Pushed and popped by one thread.
    Thread,
    /// Started and ended by any thread.
    Process,
    /// No range but a moment.
    Mark,
}

/// Ranges, and what there is to know of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranges {
    /// In any order.
    pub ranges: Vec<Range>,
    /// Names that the application gave to threads; empty if no name is new.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<(u32, String)>,
    /// Names that it gave to streams, by their number; empty if no name is new.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<(u64, String)>,
    /// What is not known of them, so far.
    pub lost: RangesLost,
}

/// What is not known of ranges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangesLost {
    /// Ranges of which too many were around them, or open at once.
    pub deep: u64,
    /// Names that were cut or not kept.
    pub cut: u64,
    /// Ranges for which there was no room until they were fetched.
    pub crowded: u64,
}

/// Stacks on the CPU that operations were called from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStacks {
    /// Those that are new.
    pub stacks: Vec<HostStack>,
    /// Files that addresses are in; empty if none is new.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<HostModule>,
    /// Operations so far whose stack there was no room for.
    pub crowded: u64,
}

/// One stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStack {
    /// From 1.
    pub number: u32,
    /// Return addresses, from the innermost.
    pub frames: Vec<u64>,
}

/// A file with code in the process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostModule {
    /// As the process names it.
    pub path: String,
    /// Where it lies.
    pub start: u64,
    /// Behind it.
    pub end: u64,
    /// What is added to addresses in the file.
    pub bias: u64,
}

//! What the device did for the application, and when: one record for each operation that was put into a stream.

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

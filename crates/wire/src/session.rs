//! What a session has, as a tool is told: its device, programs, maps and contexts.

use serde::{Deserialize, Serialize};

use crate::layout::{Layout, SumField};

/// The device that the application uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Marketing name.
    pub name: String,
    /// Compute capability.
    pub capability: (u32, u32),
    /// Multiprocessors.
    pub sms: u32,
    /// CPU numbers of each context: multiprocessors of the largest device that the driver knows.
    #[serde(default)]
    pub cpus: u32,
    /// 13000 for CUDA 13.0.
    pub driver_version: i32,
    /// The emulator, not hardware.
    pub soft: bool,
}

/// A context with maps of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextInfo {
    /// In the order in which contexts got maps, from 0.
    pub number: u32,
    /// Ordinal of its device.
    pub device: u32,
    /// The device's name.
    pub name: String,
    /// The device's multiprocessors.
    pub sms: u32,
    /// CPU numbers that each context has, for there are as many shards of maps: multiprocessors of
    /// the largest device.
    pub cpus: u32,
    /// Bytes of the device's memory that maps, rings and launch records take there.
    #[serde(default)]
    pub device_bytes: u64,
}

/// Maps that came to a context when programs were replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoreMaps {
    /// The number of the context.
    pub context: u32,
    /// The number of the first of them: as many the context had before.
    pub first: u32,
    /// As [`ContextInfo::device_bytes`], with them.
    pub device_bytes: u64,
}

/// A program of the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// C function name.
    pub name: String,
    /// ELF section name.
    pub section: String,
    /// Kernel glob of the section.
    pub glob: String,
    /// Whose it is ([`crate::ClientCounts::client`]).
    #[serde(default, skip_serializing_if = "is_none")]
    pub client: u32,
}

/// A map and where its bytes mean what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MapInfo {
    /// Name in the object.
    pub name: String,
    /// Number of the type.
    pub map_type: u32,
    /// Bytes.
    pub key_size: u32,
    /// Bytes.
    pub value_size: u32,
    /// As declared.
    pub max_entries: u32,
    /// How a snapshot is laid out.
    pub layout: Layout,
    /// Fields that are summed over shards.
    pub summed: Vec<SumField>,
    /// Fields that are summed over contexts.
    #[serde(default)]
    pub added: Vec<SumField>,
    /// Bytes of a snapshot; 0 for a ring, whose records are events.
    pub bytes: u64,
    /// Whose it is ([`crate::ClientCounts::client`]).
    #[serde(default, skip_serializing_if = "is_none")]
    pub client: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
pub(crate) fn is_none(client: &u32) -> bool {
    *client == 0
}

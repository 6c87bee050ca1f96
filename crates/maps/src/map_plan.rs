//! What a map is once it is planned: sizes, layout and first contents. Every type's file fills one
//! in.

use std::collections::BTreeSet;

use warpbpf_abi::layout::{MapLayout, SumField, UserRingLayout};
use warpbpf_abi::maps::{MapType, Placement};

/// Most bytes of device memory that one map may take.
pub const MAX_BYTES: u64 = 8 << 30;

/// Most bytes that a summed array may take with all its copies. A larger one is spread over so many
/// lines that copies per multiprocessor would cost memory and save nothing.
pub const MAX_SHARDED_BYTES: u64 = 64 << 20;

/// Bytes to put at an offset of a map's device memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// Bytes from the map's base address.
    pub offset: u64,
    /// What to write.
    pub bytes: Vec<u8>,
}

/// How one program uses a map: the same facts as the code generator's `MapUse`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SumUse {
    /// Fields that are only ever added to, with results unused.
    pub adds: BTreeSet<SumField>,
    /// Why the map cannot be summed, if it cannot.
    pub not_summable: Option<String>,
    /// What is done to values is more than adding; keys may come and go by helpers.
    pub more_than_adds: bool,
    /// It runs on the CPU, and reads and writes as the host does: values are in one place for it,
    /// and are added up over devices all the same.
    pub on_cpu: bool,
}

/// A map that can be made: how large, how laid out, with what in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapPlan {
    /// Name of the C variable, or of the data section.
    pub name: String,
    /// Type.
    pub map_type: MapType,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// As declared.
    pub max_entries: u32,
    /// Programs may not write.
    pub read_only: bool,
    /// Device layout.
    pub layout: MapLayout,
    /// Fields whose copies are added up when the layout is summed; else empty.
    pub sum_fields: Vec<SumField>,
    /// Fields that programs only add to: what several devices have of them is added up.
    pub added: Vec<SumField>,
    /// Why an array that programs add to is not summed; `None` where it is, or where nobody adds.
    pub not_summed: Option<String>,
    /// Whose memory it lies in.
    pub placement: Placement,
    /// What to write over zeroed memory before the first launch.
    pub image: Vec<Write>,
    /// The same in further contexts: what is added up over contexts begins in one of them only.
    pub further: Vec<Write>,
}

impl MapPlan {
    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        self.layout.size()
    }

    /// Bytes of a snapshot, from the first one on: of a user ring what stands before its records. 0
    /// of a ring, whose records are events.
    pub fn snapshot_bytes(&self) -> u64 {
        match self.layout {
            MapLayout::Ring(_) => 0,
            MapLayout::UserRing(_) => UserRingLayout::DATA,
            MapLayout::Array(_)
            | MapLayout::PerThread(_)
            | MapLayout::Hash(_)
            | MapLayout::Lru(_)
            | MapLayout::Queue(_)
            | MapLayout::Bloom(_)
            | MapLayout::Hosted(_) => self.bytes(),
        }
    }
}

/// What layouts depend on of the device that maps are made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hardware {
    /// Multiprocessors.
    pub sms: u32,
    /// It has 128-bit atomics: compute capability 9.0 and higher.
    pub wide_atomics: bool,
}

impl Hardware {
    /// A device of this compute capability.
    pub fn new(sms: u32, capability: (u32, u32)) -> Hardware {
        Hardware {
            sms,
            wide_atomics: capability >= (9, 0),
        }
    }
}

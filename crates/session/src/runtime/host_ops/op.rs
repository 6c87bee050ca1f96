//! An operation on a map, and what is answered.

use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::maps::{ENOENT, MapType};
use warpbpf_driver::{Driver, DriverError, Function, Stream};
use warpbpf_maps::{AccessError, MapPlan, MapView, Value};

use crate::plan::session::Session;
use crate::runtime::held::Held;
use crate::runtime::host_memory::HostMemory;

/// Least bytes of page-locked memory for records, and as many on the device; a batch that is longer
/// goes in parts.
pub(super) const RECORDS: u64 = 1 << 20;

/// Largest map that is copied whole for lookups where no kernel can run.
pub(super) const COPIED: u64 = 1 << 30;
/// Threads of a block of operations.
pub(super) const BLOCK: u32 = 32;

/// What is to be done. Queues, stacks and bloom filters take `Lookup`, `Update` and
/// `LookupAndDelete` for `Peek`, `Push` and `Pop`, as Linux does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The value of a key.
    Lookup,
    /// Gives a key a value.
    Update,
    /// Removes a key.
    Delete,
    /// Adds a value.
    Push,
    /// Takes the next value out.
    Pop,
    /// The next value, which stays; of a bloom filter, whether a value is in it.
    Peek,
    /// The value of a key, which is removed.
    LookupAndDelete,
    /// Changes some words of the value of a key, which has a fixed place, and leaves the others as
    /// the device has them; the operation's value is what [`warpbpf_maps::words::pack`] makes.
    Words,
}

impl Action {
    /// It is answered with a value.
    pub(super) fn gives(self) -> bool {
        match self {
            Action::Lookup | Action::Pop | Action::Peek | Action::LookupAndDelete => true,
            Action::Update | Action::Delete | Action::Push | Action::Words => false,
        }
    }
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostOp {
    /// What.
    pub action: Action,
    /// `BPF_ANY`, `BPF_NOEXIST` or `BPF_EXIST`, as the operation takes them.
    pub flags: u64,
    /// Bytes of the key.
    pub key: Vec<u8>,
    /// Bytes of the value.
    pub value: Vec<u8>,
}

/// What it gave: bytes (none for changes), or Linux's error number, negative.
pub type Answer = Result<Vec<u8>, i64>;

/// What does a map's operations. Those that were loaded together have one memory for records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loaded {
    pub(super) function: Function,
    pub(super) record: Record,
    /// Page-locked; touched only when nothing is in flight.
    pub(super) host: Memory,
    pub(super) records: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    pub(super) pointer: *mut u8,
    pub(super) bytes: u64,
}
// SAFETY: page-locked memory that is `HostOps`'s; whoever touches it holds the lock around that.
unsafe impl Send for Memory {}

impl Memory {
    pub(super) fn new(held: &mut Held<'_>, bytes: u64) -> Result<Memory, DriverError> {
        let (pointer, _) = held.host_alloc(bytes as usize)?;
        Ok(Memory { pointer, bytes })
    }

    /// # Safety
    /// No copy of the device into it is under way.
    pub(super) unsafe fn read(&self, at: u64, bytes: u64) -> &[u8] {
        debug_assert!(at + bytes <= self.bytes);
        // SAFETY: inside the allocation; the caller's promise.
        unsafe { std::slice::from_raw_parts(self.pointer.add(at as usize), bytes as usize) }
    }

    /// # Safety
    /// No copy of the device from or into it is under way.
    pub(super) unsafe fn write(&mut self, at: u64, bytes: &[u8]) {
        debug_assert!(at + bytes.len() as u64 <= self.bytes);
        // SAFETY: inside the allocation; the caller's promise.
        unsafe {
            let to = self.pointer.add(at as usize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }
}

/// A map, where it is, and where its operations are done.
pub(crate) struct At<'a> {
    pub(crate) driver: &'a Driver,
    pub(crate) session: &'a Session,
    pub(crate) index: usize,
    /// Where programs find each map of the session.
    pub(crate) bases: &'a [u64],
    /// It lies there, if it does not on the device.
    pub(crate) in_host: Option<&'a HostMemory>,
}

impl At<'_> {
    pub(super) fn base(&self) -> u64 {
        self.bases[self.index]
    }

    /// Copies what lies from `offset` on.
    pub(super) fn read(
        &self,
        offset: u64,
        into: &mut [u8],
        stream: Stream,
    ) -> Result<(), DriverError> {
        match self.in_host {
            Some(memory) => {
                memory.read(offset, into);
                Ok(())
            }
            None => self.driver.read(self.base() + offset, into, stream),
        }
    }

    pub(super) fn plan(&self) -> &MapPlan {
        &self.session.maps()[self.index]
    }
}

/// One copy has what a lookup needs: values are in slots. Two copies take longer than one of a
/// small map.
pub(super) fn reads_once(plan: &MapPlan) -> bool {
    matches!(plan.layout, MapLayout::Hash(l) if l.dense || l.homes() && !l.swaps())
}

/// It has a value per multiprocessor, and no fixed places.
pub(super) fn has_copies(plan: &MapPlan) -> bool {
    matches!(plan.map_type, MapType::PercpuHash | MapType::LruPercpuHash)
}

/// Keys say where values are; a queue has none.
pub(super) fn is_keyed(plan: &MapPlan) -> bool {
    plan.key_size > 0
}

/// Lookups in a copy of a map.
pub(super) fn looked_up(plan: &MapPlan, bytes: &[u8], ops: &[HostOp]) -> Vec<Answer> {
    let view = MapView::new(plan, bytes);
    let lookup = |op: &HostOp| match view.as_ref().map(|view| view.lookup(&op.key)) {
        Ok(found) => answered(plan, found),
        Err(error) => Err(error.errno()),
    };
    ops.iter().map(lookup).collect()
}

pub(super) fn answered(plan: &MapPlan, found: Result<Option<Value>, AccessError>) -> Answer {
    match found {
        Ok(Some(value)) => Ok(flat(plan, value)),
        Ok(None) => Err(ENOENT),
        Err(error) => Err(error.errno()),
    }
}

pub(super) fn fail_all(ops: &[HostOp], errno: i64) -> Vec<Answer> {
    vec![Err(errno); ops.len()]
}

/// The bytes of a value; of several, each padded to 8 bytes, one behind the other.
pub(super) fn flat(plan: &MapPlan, value: Value) -> Vec<u8> {
    let stride = (plan.value_size as usize).next_multiple_of(8);
    match value {
        Value::One(value) => value,
        Value::PerSm(values) => {
            let mut all = vec![0; stride * values.len()];
            for (to, value) in all.chunks_mut(stride).zip(&values) {
                to[..value.len()].copy_from_slice(value);
            }
            all
        }
        Value::PerThread(values) => {
            let threads = match plan.layout {
                MapLayout::PerThread(l) => l.threads as usize,
                _ => 0,
            };
            let mut all = vec![0; stride * threads];
            for (thread, value) in values {
                let at = thread as usize * stride;
                all[at..at + value.len()].copy_from_slice(&value);
            }
            all
        }
    }
}

/// How a map's operations are written into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(super) key_size: u32,
    pub(super) value_size: u32,
    /// A peek brings the value that it asks for.
    pub(super) asks: bool,
    /// What each operation is called in a record, if the map has it.
    pub(super) codes: Codes,
}

/// Which helpers the map's type has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Codes {
    pub(super) lookup: bool,
    pub(super) update: bool,
    pub(super) delete: bool,
    pub(super) push: bool,
    pub(super) pop: bool,
    pub(super) peek: bool,
}

//! What a map holds while no application is connected, and what the tool maps of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use warpbpf_abi::maps::{BPF_ANY, BPF_EXIST, BPF_NOEXIST, MapType};

use crate::memory::Memory;
use crate::objects::perf::Output;
use crate::spec::Spec;
use crate::tool::notify::Notify;
use crate::tool::ring::Ring;
use crate::tool::user_ring::UserRing;
use crate::uapi::F_MMAPABLE;

/// How many records of a map of type 1527 wait for a tool that does not ask for them.
const MOST_RECORDS: usize = 1 << 16;

/// Records of a map of type 1527, for [`crate::interpose::bpftime`].
#[derive(Debug, Default)]
pub struct Records {
    waiting: Mutex<VecDeque<Vec<u8>>>,
    /// How many the tool was given.
    given: AtomicU64,
}

impl Records {
    /// Adds one; false if there is no room now.
    pub fn push(&self, record: &[u8]) -> bool {
        let mut records = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if records.len() >= MOST_RECORDS {
            return false;
        }
        records.push_back(record.to_vec());
        true
    }
    /// Takes out all.
    pub fn take(&self) -> VecDeque<Vec<u8>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = std::mem::take(&mut *waiting);
        // With the lock, so that each record either waits or was given for who holds it.
        self.given.fetch_add(taken.len() as u64, Ordering::Relaxed);
        taken
    }
    /// How many wait, and how many were taken out.
    pub fn counts(&self) -> (u64, u64) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        (waiting.len() as u64, self.given.load(Ordering::Relaxed))
    }
    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        let records = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        records.is_empty()
    }
    /// How many wait.
    pub fn len(&self) -> usize {
        let records = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        records.len()
    }
}

/// What a map holds here.
#[derive(Debug)]
pub enum Contents {
    /// Values by index, each in whole words.
    Slots(Vec<u8>),
    /// The same where the tool can map them, and as they were when last compared with the device.
    Mapped(Arc<Memory>, Vec<u8>),
    /// Values by key, in the order of keys.
    Keyed(BTreeMap<Vec<u8>, Vec<u8>>),
    /// Values in a row: of a queue, of a stack, put into a bloom filter.
    Row(VecDeque<Vec<u8>>),
    /// A ring of records.
    Ring(Arc<Ring>),
    /// A ring of records that the tool fills.
    UserRing(Arc<UserRing>),
    /// Rings of CPUs.
    Outputs(Arc<Mutex<BTreeMap<u32, Arc<Output>>>>),
    /// Maps by key: places in the kernel's table.
    Maps(BTreeMap<Vec<u8>, usize>),
    /// Nothing: values of threads exist on the device only.
    Threads,
    /// Records of bpftime's ring.
    Records(Arc<Records>),
}

/// Where `key` is an index below `entries`.
pub fn index(key: &[u8], entries: u32) -> Option<u32> {
    let key = u32::from_ne_bytes(*key.first_chunk()?);
    (key < entries).then_some(key)
}

impl Contents {
    /// What a new map holds. `slot` is the size of a value as user space sees it.
    ///
    /// # Errors
    /// `EINVAL` for attributes that Linux refuses, `E2BIG` for more memory than there can be.
    pub fn new(spec: &Spec, slot: u64) -> Result<Contents, Errno> {
        let wanted = |good: bool| if good { Ok(()) } else { Err(Errno::INVAL) };
        let (keys, values) = (spec.key_size, spec.value_size);
        let Some(kind) = spec.kind() else {
            // Of the host's programs only: it is never looked into by the device.
            return Ok(Contents::Keyed(BTreeMap::new()));
        };
        match kind {
            MapType::Array
            | MapType::PercpuArray
            | MapType::GpuArray
            | MapType::GpuKernelArray
            | MapType::GpuHostArray => {
                wanted(keys == 4 && values > 0 && spec.max_entries > 0)?;
                let bytes = slot.checked_mul(u64::from(spec.max_entries));
                let bytes = bytes.filter(|bytes| *bytes <= warpbpf_maps::MAX_BYTES);
                let bytes = bytes.ok_or(Errno::TOOBIG)?;
                if spec.flags & F_MMAPABLE != 0 {
                    let memory = Arc::new(Memory::new(bytes)?);
                    return Ok(Contents::Mapped(memory, vec![0; bytes as usize]));
                }
                Ok(Contents::Slots(vec![0; bytes as usize]))
            }
            MapType::Hash
            | MapType::LruHash
            | MapType::PercpuHash
            | MapType::LruPercpuHash
            | MapType::GpuHash => {
                wanted(keys > 0 && values > 0 && spec.max_entries > 0)?;
                Ok(Contents::Keyed(BTreeMap::new()))
            }
            MapType::Queue | MapType::Stack | MapType::BloomFilter => {
                wanted(keys == 0 && values > 0 && spec.max_entries > 0)?;
                Ok(Contents::Row(VecDeque::new()))
            }
            MapType::Ringbuf => {
                wanted(keys == 0 && values == 0)?;
                Ok(Contents::Ring(Arc::new(Ring::new(spec.max_entries)?)))
            }
            MapType::UserRingbuf => {
                wanted(keys == 0 && values == 0)?;
                let ring = UserRing::new(spec.max_entries)?;
                Ok(Contents::UserRing(Arc::new(ring)))
            }
            MapType::PerfEventArray => {
                wanted(keys == 4 && values == 4 && spec.max_entries > 0)?;
                Ok(Contents::Outputs(Arc::default()))
            }
            MapType::ArrayOfMaps | MapType::HashOfMaps => {
                wanted(keys > 0 && values == 4 && spec.max_entries > 0)?;
                wanted(kind == MapType::HashOfMaps || keys == 4)?;
                Ok(Contents::Maps(BTreeMap::new()))
            }
            MapType::PerThreadArray | MapType::PerThreadHostArray => {
                wanted(keys == 4 && values > 0 && spec.max_entries > 0)?;
                Ok(Contents::Threads)
            }
            MapType::GpuRingbuf => Ok(Contents::Records(Arc::default())),
        }
    }

    /// What the map's descriptors are names of, if they can become readable.
    pub fn notify(&self) -> Option<&Notify> {
        match self {
            Contents::Ring(ring) => Some(ring.notify()),
            Contents::UserRing(ring) => Some(ring.notify()),
            _ => None,
        }
    }

    /// Makes descriptors readable whose rings have something to read, writable those that have
    /// room, and the others not.
    pub fn refresh(&self) {
        match self {
            Contents::Ring(ring) => ring.refresh(),
            Contents::UserRing(ring) => ring.refresh(),
            Contents::Outputs(outputs) => {
                let outputs = outputs.lock().unwrap_or_else(PoisonError::into_inner);
                outputs.values().for_each(|output| output.refresh());
            }
            _ => {}
        }
    }

    /// The value of a key.
    pub fn get(&self, spec: &Spec, slot: u64, key: &[u8]) -> Option<Vec<u8>> {
        let place = || Some(slot as usize * index(key, spec.max_entries)? as usize);
        match self {
            Contents::Slots(bytes) => {
                let at = place()?;
                Some(bytes[at..at + slot as usize].to_vec())
            }
            Contents::Mapped(memory, _) => Some(memory.copy(place()? as u64, slot)),
            Contents::Keyed(entries) => entries.get(key).cloned(),
            Contents::Row(row) => match spec.kind() {
                Some(MapType::Stack) => row.back().cloned(),
                _ => row.front().cloned(),
            },
            Contents::Threads => {
                index(key, spec.max_entries)?;
                Some(vec![0; slot as usize])
            }
            Contents::Ring(_)
            | Contents::UserRing(_)
            | Contents::Outputs(_)
            | Contents::Maps(_)
            | Contents::Records(_) => None,
        }
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// As Linux: `ENOENT`, `EEXIST`, `E2BIG`, `EINVAL`.
    pub fn set(
        &mut self,
        spec: &Spec,
        slot: u64,
        key: &[u8],
        value: &[u8],
        flags: u64,
    ) -> Result<(), Errno> {
        match self {
            Contents::Slots(_) | Contents::Mapped(..) => {
                let at = index(key, spec.max_entries).ok_or(Errno::TOOBIG)?;
                let at = at as usize * slot as usize;
                if flags == BPF_NOEXIST {
                    return Err(Errno::EXIST);
                }
                match self {
                    Contents::Slots(bytes) => bytes[at..at + value.len()].copy_from_slice(value),
                    Contents::Mapped(memory, _) => memory.store(at as u64, value),
                    _ => {}
                }
                Ok(())
            }
            Contents::Keyed(entries) => {
                let known = entries.contains_key(key);
                match flags {
                    BPF_NOEXIST if known => return Err(Errno::EXIST),
                    BPF_EXIST if !known => return Err(Errno::NOENT),
                    _ => {}
                }
                if !known && entries.len() >= spec.max_entries as usize {
                    return Err(Errno::TOOBIG);
                }
                entries.insert(key.to_vec(), value.to_vec());
                Ok(())
            }
            Contents::Row(row) => {
                if flags == BPF_NOEXIST {
                    return Err(Errno::INVAL);
                }
                // A filter is full of what was put in only when it says yes to everything.
                if row.len() >= spec.max_entries as usize
                    && spec.kind() != Some(MapType::BloomFilter)
                {
                    // On the device nobody reaches a stack's oldest value.
                    if flags == BPF_ANY || spec.kind() == Some(MapType::Stack) {
                        return Err(Errno::TOOBIG);
                    }
                    row.pop_front();
                }
                row.push_back(value.to_vec());
                Ok(())
            }
            Contents::Ring(_)
            | Contents::UserRing(_)
            | Contents::Outputs(_)
            | Contents::Maps(_)
            | Contents::Threads
            | Contents::Records(_) => Err(Errno::INVAL),
        }
    }

    /// Removes a key.
    ///
    /// # Errors
    /// As Linux: `ENOENT`, and `EINVAL` where keys cannot be removed.
    pub fn remove(&mut self, key: &[u8]) -> Result<(), Errno> {
        match self {
            Contents::Keyed(entries) => entries.remove(key).map(|_| ()).ok_or(Errno::NOENT),
            Contents::Maps(entries) => entries.remove(key).map(|_| ()).ok_or(Errno::NOENT),
            Contents::Outputs(outputs) => {
                let cpu = index(key, u32::MAX).ok_or(Errno::INVAL)?;
                let mut outputs = outputs.lock().unwrap_or_else(PoisonError::into_inner);
                outputs.remove(&cpu).map(|_| ()).ok_or(Errno::NOENT)
            }
            Contents::Slots(_)
            | Contents::Mapped(..)
            | Contents::Row(_)
            | Contents::Ring(_)
            | Contents::UserRing(_)
            | Contents::Threads
            | Contents::Records(_) => Err(Errno::INVAL),
        }
    }

    /// The values that are not what a new map holds, by key: what the device must be told.
    pub fn entries(&self, spec: &Spec, slot: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
        let values = |bytes: &[u8]| {
            (0u32..)
                .zip(bytes.chunks_exact(slot as usize))
                .take(spec.max_entries as usize)
                .filter(|(_, value)| value.iter().any(|byte| *byte != 0))
                .map(|(key, value)| (key.to_ne_bytes().to_vec(), value.to_vec()))
                .collect()
        };
        match self {
            Contents::Slots(bytes) => values(bytes),
            Contents::Mapped(memory, _) => {
                values(&memory.copy(0, slot * u64::from(spec.max_entries)))
            }
            Contents::Keyed(entries) => (entries.iter())
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
            Contents::Row(row) => row.iter().map(|v| (Vec::new(), v.clone())).collect(),
            Contents::Ring(_)
            | Contents::UserRing(_)
            | Contents::Outputs(_)
            | Contents::Maps(_)
            | Contents::Threads
            | Contents::Records(_) => Vec::new(),
        }
    }
}

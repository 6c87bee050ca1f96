//! Device memory: one arena with its own address range, plus host ranges mapped at their own
//! address (UVA). Every access is checked against the table of live allocations. Guest data is only
//! touched through atomics of the access width, so that racing guest threads (on several host
//! threads) are a guest bug and never undefined behaviour here.
//!
//! Memory of another device is found through a link to it, which is looked at last: a program that
//! never asked for peer access pays nothing for it, and its access is out of bounds.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Address of the arena's first byte as the guest sees it: a number in user space that neither a
/// program image, a heap nor `mmap` gets by default, and the same in every run, so that printed
/// pointers are reproducible.
pub const ARENA_BASE: u64 = 0x0a00_0000_0000;
/// `cudaMalloc` promises 256.
const ALIGNMENT: u64 = 256;
/// Unallocated bytes behind every allocation, so that running off its end is seen.
const RED_ZONE: u64 = 256;

/// A host-side access to device memory that does not lie inside one live allocation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemError {
    /// The range is not inside one allocation.
    #[error("device range `{address:#x}`+`{bytes}` is not inside a live allocation ({nearest})")]
    OutOfBounds {
        /// First byte.
        address: u64,
        /// Length in bytes.
        bytes: u64,
        /// The nearest allocation, in words.
        nearest: String,
    },
    /// `free` or `unmap_host` of an address that is not the start of an allocation of that kind.
    #[error("`{address:#x}` is not the start of a live device allocation")]
    NotAllocated {
        /// The address given.
        address: u64,
    },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Region {
    pub base: u64,
    pub size: u64,
    pub host: *mut u8,
    mapped: bool,
    /// In another device's arena, whose coming and going this one does not see.
    of_peer: bool,
}

const NO_REGION: Region = Region {
    base: 0,
    size: 0,
    host: std::ptr::null_mut(),
    mapped: false,
    of_peer: false,
};

struct Peer {
    memory: Arc<Memory>,
    open: bool,
}

#[derive(Default)]
struct Table {
    live: BTreeMap<u64, Region>,
    /// Free arena ranges by offset.
    free: BTreeMap<u64, u64>,
}

/// The memory of one device.
pub(crate) struct Memory {
    /// Address of the arena's first byte.
    start: u64,
    arena: *mut u8,
    layout: Option<Layout>,
    table: RwLock<Table>,
    /// Counts changes of the table, so that a view knows when its cached regions are stale.
    generation: AtomicU64,
    capacity: u64,
    used: AtomicU64,
    /// Devices whose arenas can be reached, and those that once could: a kernel that began before
    /// may still be in one, so none is ever let go.
    peers: RwLock<Vec<Peer>>,
}

// SAFETY: the arena is only accessed through atomics (see `Chunk` functions below); the table has
// its lock. Mapped host pointers are valid from any thread by the contract of `map_host`.
unsafe impl Send for Memory {}
// SAFETY: as for `Send`.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn new(start: u64, bytes: u64) -> Memory {
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let layout = usize::try_from(bytes)
            .ok()
            .filter(|&n| n > 0)
            // No more alignment than `calloc` gives by itself: beyond it the allocator would write
            // all the zeroes.
            .and_then(|n| Layout::from_size_align(n, 16).ok());
        let arena = match layout {
            // SAFETY: the layout's size is not zero.
            Some(layout) => unsafe { alloc_zeroed(layout) },
            None => std::ptr::null_mut(),
        };
        let layout = layout.filter(|_| !arena.is_null());
        let mut table = Table::default();
        let mut capacity = 0;
        if layout.is_some() {
            capacity = bytes;
            table.free.insert(0, bytes);
        }
        Memory {
            start,
            arena,
            layout,
            table: RwLock::new(table),
            generation: AtomicU64::new(1),
            capacity,
            used: AtomicU64::new(0),
            peers: RwLock::default(),
        }
    }

    /// From now on these devices' arenas can be reached, and no others.
    pub(crate) fn set_peers(&self, open: &[&Arc<Memory>]) {
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        for peer in peers.iter_mut() {
            peer.open = false;
        }
        for memory in open {
            match peers.iter_mut().find(|p| Arc::ptr_eq(&p.memory, memory)) {
                Some(peer) => peer.open = true,
                None => peers.push(Peer {
                    memory: Arc::clone(memory),
                    open: true,
                }),
            }
        }
        self.generation.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn alloc(&self, bytes: u64) -> Option<u64> {
        let room = bytes
            .max(1)
            .checked_next_multiple_of(ALIGNMENT)?
            .checked_add(RED_ZONE)?;
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let (&offset, &length) = table.free.iter().find(|&(_, &length)| length >= room)?;
        table.free.remove(&offset);
        if length > room {
            table.free.insert(offset + room, length - room);
        }
        let base = self.start + offset;
        // SAFETY: `offset` lies inside the arena: free ranges only come from it.
        let host = unsafe { self.arena.add(offset as usize) };
        table.live.insert(
            base,
            Region {
                base,
                size: bytes.max(1),
                host,
                mapped: false,
                of_peer: false,
            },
        );
        self.used.fetch_add(room, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Release);
        Some(base)
    }

    pub(crate) fn free(&self, base: u64) -> Result<(), MemError> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let region = match table.live.get(&base) {
            Some(region) if !region.mapped => *region,
            _ => return Err(MemError::NotAllocated { address: base }),
        };
        table.live.remove(&base);
        let mut offset = base - self.start;
        let mut length = region.size.next_multiple_of(ALIGNMENT) + RED_ZONE;
        self.used.fetch_sub(length, Ordering::Relaxed);
        if let Some((&before, &room)) = table.free.range(..offset).next_back()
            && before + room == offset
        {
            table.free.remove(&before);
            offset = before;
            length += room;
        }
        if let Some(room) = table.free.remove(&(offset + length)) {
            length += room;
        }
        table.free.insert(offset, length);
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// # Safety
    /// `host` must stay valid for reads and writes of `len` bytes, through atomics and from any
    /// thread, until `unmap_host` returned and no launch is running that began before.
    pub(crate) unsafe fn map_host(&self, host: *mut u8, len: u64) -> u64 {
        let base = host as u64;
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.live.insert(
            base,
            Region {
                base,
                size: len,
                host,
                mapped: true,
                of_peer: false,
            },
        );
        self.generation.fetch_add(1, Ordering::Release);
        base
    }

    pub(crate) fn unmap_host(&self, base: u64) -> Result<(), MemError> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        match table.live.get(&base) {
            Some(region) if region.mapped => {}
            _ => return Err(MemError::NotAllocated { address: base }),
        }
        table.live.remove(&base);
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    pub(crate) fn find(&self, address: u64) -> Option<Region> {
        self.find_own(address)
            .or_else(|| self.find_of_peer(address))
    }

    fn find_of_peer(&self, address: u64) -> Option<Region> {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        let mut peers = peers.iter().filter(|peer| peer.open);
        let found = peers.find_map(|peer| peer.memory.find_own(address))?;
        Some(Region {
            of_peer: true,
            ..found
        })
    }

    fn find_own(&self, address: u64) -> Option<Region> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let (_, region) = table.live.range(..=address).next_back()?;
        (address - region.base < region.size).then_some(*region)
    }

    /// The nearest live allocation, in words for a message.
    pub(crate) fn nearest(&self, address: u64) -> String {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let below = table.live.range(..=address).next_back().map(|(_, r)| *r);
        let above = table.live.range(address..).next().map(|(_, r)| *r);
        let past = |r: Region| address - (r.base + r.size).min(address);
        let say_below = |r: Region| {
            if address < r.base + r.size {
                format!(
                    "it starts inside the {}-byte allocation at {:#x}",
                    r.size, r.base
                )
            } else {
                format!(
                    "{} bytes past the {}-byte allocation at {:#x}",
                    past(r),
                    r.size,
                    r.base
                )
            }
        };
        let say_above = |r: Region| {
            format!(
                "{} bytes before the {}-byte allocation at {:#x}",
                r.base - address,
                r.size,
                r.base
            )
        };
        match (below, above) {
            (None, None) => "no memory is allocated".to_owned(),
            (Some(b), None) => say_below(b),
            (None, Some(a)) => say_above(a),
            (Some(b), Some(a)) if past(b) <= a.base - address => say_below(b),
            (Some(_), Some(a)) => say_above(a),
        }
    }

    fn host_range(&self, address: u64, bytes: u64) -> Result<*mut u8, MemError> {
        match self.find(address) {
            Some(r) if bytes <= r.size - (address - r.base) => {
                Ok(r.host.wrapping_add((address - r.base) as usize))
            }
            _ => Err(MemError::OutOfBounds {
                address,
                bytes,
                nearest: self.nearest(address),
            }),
        }
    }

    pub(crate) fn write(&self, address: u64, data: &[u8]) -> Result<(), MemError> {
        if data.is_empty() {
            return Ok(());
        }
        let to = self.host_range(address, data.len() as u64)?;
        // SAFETY: `host_range` checked that all of `data.len()` bytes lie in one live region.
        unsafe { copy_in(to, data) };
        Ok(())
    }

    pub(crate) fn read(&self, address: u64, out: &mut [u8]) -> Result<(), MemError> {
        if out.is_empty() {
            return Ok(());
        }
        let from = self.host_range(address, out.len() as u64)?;
        // SAFETY: as in `write`.
        unsafe { copy_out(from, out) };
        Ok(())
    }

    pub(crate) fn fill(&self, address: u64, byte: u8, bytes: u64) -> Result<(), MemError> {
        if bytes == 0 {
            return Ok(());
        }
        let to = self.host_range(address, bytes)?;
        let chunk = [byte; 4096];
        let mut done = 0u64;
        while done < bytes {
            let n = (bytes - done).min(4096) as usize;
            // SAFETY: as in `write`, the whole range was checked.
            unsafe { copy_in(to.wrapping_add(done as usize), &chunk[..n]) };
            done += n as u64;
        }
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(layout) = self.layout {
            // SAFETY: allocated in `new` with this layout, freed once.
            unsafe { dealloc(self.arena, layout) };
        }
    }
}

/// # Safety
/// `to` must be valid for `data.len()` bytes of atomic writes.
unsafe fn copy_in(to: *mut u8, data: &[u8]) {
    let head = to.align_offset(8).min(data.len());
    let (first, rest) = data.split_at(head);
    let (words, last) = rest.as_chunks::<8>();
    for (i, &byte) in first.iter().enumerate() {
        // SAFETY: inside the range the caller vouches for.
        unsafe { store(to.wrapping_add(i), 1, u64::from(byte)) };
    }
    for (i, word) in words.iter().enumerate() {
        // SAFETY: as above; aligned because `head` bytes lead to a multiple of 8.
        unsafe { store(to.wrapping_add(head + 8 * i), 8, u64::from_ne_bytes(*word)) };
    }
    let tail = head + 8 * words.len();
    for (i, &byte) in last.iter().enumerate() {
        // SAFETY: as above.
        unsafe { store(to.wrapping_add(tail + i), 1, u64::from(byte)) };
    }
}

/// # Safety
/// `from` must be valid for `out.len()` bytes of atomic reads.
unsafe fn copy_out(from: *mut u8, out: &mut [u8]) {
    let head = from.align_offset(8).min(out.len());
    let (first, rest) = out.split_at_mut(head);
    let (words, last) = rest.as_chunks_mut::<8>();
    for (i, byte) in first.iter_mut().enumerate() {
        // SAFETY: inside the range the caller vouches for.
        *byte = unsafe { load(from.wrapping_add(i), 1) } as u8;
    }
    let tail = head + 8 * words.len();
    for (i, word) in words.iter_mut().enumerate() {
        // SAFETY: as above; aligned because `head` bytes lead to a multiple of 8.
        *word = unsafe { load(from.wrapping_add(head + 8 * i), 8) }.to_ne_bytes();
    }
    for (i, byte) in last.iter_mut().enumerate() {
        // SAFETY: as above.
        *byte = unsafe { load(from.wrapping_add(tail + i), 1) } as u8;
    }
}

/// Loads 1, 2, 4 or 8 bytes, zero-extended.
///
/// # Safety
/// `at` must be valid for reads of `bytes` and a multiple of it.
#[inline(always)]
pub(crate) unsafe fn load(at: *mut u8, bytes: u32) -> u64 {
    // SAFETY: validity and alignment are the caller's promise; x86 and Arm give mixed-size atomics
    // a meaning.
    unsafe {
        match bytes {
            1 => u64::from(AtomicU8::from_ptr(at).load(Ordering::Relaxed)),
            2 => u64::from(AtomicU16::from_ptr(at.cast()).load(Ordering::Relaxed)),
            4 => u64::from(AtomicU32::from_ptr(at.cast()).load(Ordering::Relaxed)),
            _ => AtomicU64::from_ptr(at.cast()).load(Ordering::Relaxed),
        }
    }
}

/// Stores the low 1, 2, 4 or 8 bytes of `value`.
///
/// # Safety
/// `at` must be valid for writes of `bytes` and a multiple of it.
#[inline(always)]
pub(crate) unsafe fn store(at: *mut u8, bytes: u32, value: u64) {
    // SAFETY: as in `load`.
    unsafe {
        match bytes {
            1 => AtomicU8::from_ptr(at).store(value as u8, Ordering::Relaxed),
            2 => AtomicU16::from_ptr(at.cast()).store(value as u16, Ordering::Relaxed),
            4 => AtomicU32::from_ptr(at.cast()).store(value as u32, Ordering::Relaxed),
            _ => AtomicU64::from_ptr(at.cast()).store(value, Ordering::Relaxed),
        }
    }
}

/// Replaces 2, 4 or 8 bytes by `f(old)` atomically and returns the old value.
///
/// # Safety
/// `at` must be valid for reads and writes of `bytes` and a multiple of it.
pub(crate) unsafe fn update(at: *mut u8, bytes: u32, f: impl Fn(u64) -> u64) -> u64 {
    let (set, get) = (Ordering::AcqRel, Ordering::Acquire);
    // SAFETY: as in `load`.
    unsafe {
        match bytes {
            2 => AtomicU16::from_ptr(at.cast())
                .fetch_update(set, get, |old| Some(f(u64::from(old)) as u16))
                .map(u64::from)
                .unwrap_or_else(u64::from),
            4 => AtomicU32::from_ptr(at.cast())
                .fetch_update(set, get, |old| Some(f(u64::from(old)) as u32))
                .map(u64::from)
                .unwrap_or_else(u64::from),
            _ => AtomicU64::from_ptr(at.cast())
                .fetch_update(set, get, |old| Some(f(old)))
                .unwrap_or_else(|old| old),
        }
    }
}

/// A worker's window on memory, with the last regions it used.
pub(crate) struct View<'m> {
    memory: &'m Memory,
    generation: u64,
    recent: [Region; 4],
    next: usize,
}

impl<'m> View<'m> {
    pub(crate) fn new(memory: &'m Memory) -> View<'m> {
        View {
            memory,
            generation: 0,
            recent: [NO_REGION; 4],
            next: 0,
        }
    }

    pub(crate) fn memory(&self) -> &'m Memory {
        self.memory
    }

    /// Forgets cached regions if an allocation came or went. Call once per memory instruction.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        let now = self.memory.generation.load(Ordering::Acquire);
        if now != self.generation {
            self.generation = now;
            self.recent = [NO_REGION; 4];
        }
    }

    /// Host pointer for `bytes` at `address`, if they lie in one live allocation.
    #[inline]
    pub(crate) fn get(&mut self, address: u64, bytes: u32) -> Option<*mut u8> {
        let region = self.region(address, bytes)?;
        Some(region.host.wrapping_add((address - region.base) as usize))
    }

    /// The live allocation that holds `bytes` at `address`.
    #[inline]
    pub(crate) fn region(&mut self, address: u64, bytes: u32) -> Option<Region> {
        let bytes = u64::from(bytes);
        for r in &self.recent {
            let offset = address.wrapping_sub(r.base);
            if offset < r.size && bytes <= r.size - offset {
                return Some(*r);
            }
        }
        self.region_slow(address, bytes)
    }

    #[cold]
    fn region_slow(&mut self, address: u64, bytes: u64) -> Option<Region> {
        let region = self.memory.find(address)?;
        if bytes > region.size - (address - region.base) {
            return None;
        }
        if !region.of_peer {
            self.recent[self.next % 4] = region;
            self.next += 1;
        }
        Some(region)
    }
}

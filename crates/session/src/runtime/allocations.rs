//! The application's memory that programs may read, and the fence around it (`abi::layout::fence`).
//!
//! [`Allocations`] keeps what lives, as the agent's hooks report it, and asks no driver anything.
//! [`Fence`] carries the ranges to the device, and waits until nobody reads what is about to go.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use warpbpf_abi::layout::fence;
use warpbpf_driver::{Driver, DriverError, Stream};

use crate::plan::session::Session;
use crate::runtime::held::Held;
use crate::runtime::readers::Readers;

/// What an allocation is given back by. The same address may be of two kinds at once: an exporter's
/// memory can be opened again in its own process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// By `cuMemFree` or `cuMemFreeAsync`: plain, pitched, pooled and managed memory.
    Device,
    /// By `cuMemFreeHost`: page-locked host memory.
    Host,
    /// By `cuMemHostUnregister`: the application's own memory.
    Registered,
    /// By `cuIpcCloseMemHandle`: another process's memory.
    Ipc,
    /// By unloading its module or library: a variable.
    Variable,
}

/// An allocation that lives in one context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// What it is given back by.
    pub kind: Kind,
    /// What the application gives it back with: its address on the host or the device; of a
    /// variable its address.
    pub name: u64,
    /// Addresses on the device.
    pub range: Range<u64>,
    /// The context that it lives in, as the driver's handle.
    pub context: usize,
    /// Of a variable, the module or library that it goes with, as the driver's handle; else 0.
    pub owner: usize,
}

/// Ranges that do not overlap, by their start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Takes out what is in `range`, and gives it.
    fn remove(&mut self, range: &Range<u64>) -> Vec<Range<u64>> {
        let first = self
            .0
            .range(..range.start)
            .next_back()
            .filter(|(_, end)| **end > range.start)
            .map(|(start, _)| *start);
        let hit: Vec<(u64, u64)> = first
            .into_iter()
            .chain(self.0.range(range.clone()).map(|(start, _)| *start))
            .filter_map(|start| Some((start, *self.0.get(&start)?)))
            .collect();
        let mut taken = Vec::new();
        for (start, end) in hit {
            self.0.remove(&start);
            if start < range.start {
                self.0.insert(start, range.start);
            }
            if end > range.end {
                self.0.insert(range.end, end);
            }
            taken.push(start.max(range.start)..end.min(range.end));
        }
        taken
    }

    fn insert(&mut self, range: &Range<u64>) {
        if !range.is_empty() {
            self.remove(range);
            self.0.insert(range.start, range.end);
        }
    }

    /// The parts of `range` that are in it.
    fn common(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        self.clone().remove(range)
    }
}

/// What was taken out, so that it can be put back if the driver keeps it after all.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Taken {
    allocations: Vec<Allocation>,
    mapped: Vec<Range<u64>>,
    open: Vec<(i32, Range<u64>)>,
}

impl Taken {
    /// Nothing was taken out.
    pub fn is_empty(&self) -> bool {
        self.allocations.is_empty() && self.mapped.is_empty() && self.open.is_empty()
    }
}

/// The ranges of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Readable {
    /// Ascending; they do not touch, except where a boundary is not a multiple of 16.
    pub ranges: Vec<Range<u64>>,
    /// Ranges for which there is no room: those at the highest addresses.
    pub left_out: usize,
}

/// Everything that lives.
#[derive(Debug, Default)]
pub struct Allocations {
    /// By kind and name. One name may be given out more than once (IPC), and is then given back as
    /// often.
    named: HashMap<(Kind, u64), Vec<Allocation>>,
    /// Mappings of virtual memory management.
    mapped: Ranges,
    /// What of them a device may access, by its ordinal.
    open: BTreeMap<i32, Ranges>,
}

impl Allocations {
    /// An allocation is there. A variable that is known already is the same one.
    pub fn add(&mut self, allocation: Allocation) {
        let of_name = self
            .named
            .entry((allocation.kind, allocation.name))
            .or_default();
        if allocation.kind != Kind::Variable || !of_name.contains(&allocation) {
            of_name.push(allocation);
        }
    }

    /// An allocation goes.
    pub fn take(&mut self, kind: Kind, name: u64) -> Taken {
        let mut taken = Taken::default();
        if let Some(of_name) = self.named.get_mut(&(kind, name)) {
            taken.allocations.extend(of_name.pop());
            if of_name.is_empty() {
                self.named.remove(&(kind, name));
            }
        }
        taken
    }

    /// The variables of a module or library go.
    pub fn take_owned(&mut self, owner: usize) -> Taken {
        self.take_where(|a| a.kind == Kind::Variable && a.owner == owner)
    }

    /// Everything in a context goes.
    pub fn take_context(&mut self, context: usize) -> Taken {
        self.take_where(|a| a.context == context)
    }

    fn take_where(&mut self, goes: impl Fn(&Allocation) -> bool) -> Taken {
        let mut taken = Taken::default();
        self.named.retain(|_, of_name| {
            taken
                .allocations
                .extend(of_name.extract_if(.., |a| goes(a)));
            !of_name.is_empty()
        });
        taken
    }

    /// Memory is mapped at these addresses. Nobody may access it yet.
    pub fn map(&mut self, range: Range<u64>) {
        for ranges in self.open.values_mut() {
            ranges.remove(&range);
        }
        self.mapped.insert(&range);
    }

    /// A device may access these addresses, as far as memory is mapped there.
    pub fn open(&mut self, device: i32, range: &Range<u64>) {
        for part in self.mapped.common(range) {
            self.open.entry(device).or_default().insert(&part);
        }
    }

    /// A device may access these addresses no longer.
    pub fn close(&mut self, device: i32, range: &Range<u64>) -> Taken {
        let ranges = self.open.get_mut(&device);
        let parts = ranges.map(|r| r.remove(range)).unwrap_or_default();
        Taken {
            open: parts.into_iter().map(|part| (device, part)).collect(),
            ..Taken::default()
        }
    }

    /// Nothing is mapped at these addresses any more.
    pub fn unmap(&mut self, range: &Range<u64>) -> Taken {
        let mut taken = Taken {
            mapped: self.mapped.remove(range),
            ..Taken::default()
        };
        for (device, ranges) in &mut self.open {
            let parts = ranges.remove(range);
            taken.open.extend(parts.into_iter().map(|p| (*device, p)));
        }
        taken
    }

    /// A device is reset: it may access nothing that was mapped.
    pub fn take_device(&mut self, device: i32) -> Taken {
        self.close(device, &(0..u64::MAX))
    }

    /// The driver kept it: everything is as it was.
    pub fn put_back(&mut self, taken: Taken) {
        for allocation in taken.allocations {
            self.add(allocation);
        }
        for range in taken.mapped {
            self.mapped.insert(&range);
        }
        for (device, range) in taken.open {
            self.open.entry(device).or_default().insert(&range);
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Allocations::default();
    }

    /// What programs in a context on a device may read. Ranges that touch become one, because what
    /// lies next to each other may be one array in pieces.
    pub fn readable(&self, context: usize, device: i32) -> Readable {
        let here = self.named.values().flatten();
        let mut all: Vec<Range<u64>> = here
            .filter(|a| a.context == context)
            .map(|a| a.range.clone())
            .chain(
                self.open
                    .get(&device)
                    .into_iter()
                    .flat_map(|ranges| ranges.0.iter().map(|(start, end)| *start..*end)),
            )
            .filter(|range| !range.is_empty())
            .collect();
        all.sort_by_key(|range| (range.start, range.end));
        let mut ranges: Vec<Range<u64>> = Vec::with_capacity(all.len());
        for range in all {
            match ranges.last_mut() {
                // Overlapping, or one where the other ends, with no word across that belongs to
                // neither.
                Some(last)
                    if range.start < last.end
                        || range.start == last.end && range.start.is_multiple_of(16) =>
                {
                    last.end = last.end.max(range.end);
                }
                Some(_) | None => ranges.push(range),
            }
        }
        let left_out = ranges.len().saturating_sub(fence::CAPACITY as usize);
        ranges.truncate(fence::CAPACITY as usize);
        Readable { ranges, left_out }
    }
}

impl Session {
    /// Some program reads the application's memory: then somebody has to keep [`Allocations`].
    pub fn reads_application(&self) -> bool {
        self.programs()
            .iter()
            .any(|p| p.verified.facts().reads_application())
    }
}

/// The device's side: the tables, and the counters of readers. Its methods act on the context that
/// it was made in, which must be current.
#[derive(Debug)]
pub struct Fence {
    base: u64,
    device: i32,
    stream: Stream,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The current table.
    index: u64,
    readers: Readers,
    /// Nobody reads by the other table.
    quiet: bool,
}

impl Fence {
    /// Makes it in the current context: two empty tables, nobody reading.
    pub(crate) fn new(driver: &Driver, held: &mut Held<'_>) -> Result<Fence, DriverError> {
        // A stream of its own: that of the maps may be busy with a large one.
        let stream = held.stream()?;
        let base = held.alloc_zeroed(fence::SIZE, stream)?;
        Ok(Fence {
            base,
            device: driver.current_device()?,
            stream,
            state: Mutex::new(State {
                index: 0,
                readers: Readers::new(base, stream),
                quiet: true,
            }),
        })
    }

    /// Address of the block (`abi::layout::fence`) on the device.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The device that it is on, by ordinal.
    pub fn device(&self) -> i32 {
        self.device
    }

    /// Exactly these ranges can be read from now on, at most [`fence::CAPACITY`]; but who is
    /// reading now may still read by what was there before: see [`Fence::wait`].
    ///
    /// False if the table that was to be written may still be read after `limit`, so that nothing
    /// was done.
    ///
    /// # Errors
    /// [`DriverError`] of a copy; then either table may be current.
    pub fn publish(
        &self,
        driver: &Driver,
        ranges: &[Range<u64>],
        limit: Duration,
    ) -> Result<bool, DriverError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let readers_stay = warpbpf_faults::strikes("session/fence-readers");
        if readers_stay || !state.quiet && !Fence::drain(driver, &mut state, limit)? {
            return Ok(false);
        }
        let ranges = &ranges[..ranges.len().min(fence::CAPACITY as usize)];
        let next = state.index ^ 1;
        let bytes: Vec<u8> = ranges
            .iter()
            .flat_map(|r| [r.start, r.end])
            .flat_map(u64::to_le_bytes)
            .collect();
        let current = ((ranges.len() as u64) << 1 | next).to_le_bytes();
        let mut counters = vec![0; 2 * fence::SET as usize];
        // One after the other in the stream: the table, that it is current, and who reads after
        // that.
        let started = || -> Result<(), DriverError> {
            let at = self.base + fence::TABLES + next * fence::TABLE;
            // SAFETY: everything is a local that lives until the stream was waited for, below.
            unsafe {
                if !bytes.is_empty() {
                    driver.start_write(at, &bytes, self.stream)?;
                }
                driver.start_write(self.base + fence::CURRENT, &current, self.stream)?;
            }
            Ok(())
        }();
        let looked = started
            .and_then(|()| driver.read(self.base + fence::READERS, &mut counters, self.stream));
        if looked.is_err() {
            let _ = driver.wait(self.stream);
        }
        // From here on it may be current.
        state.index = next;
        state.quiet = looked.is_ok() && counters.iter().all(|byte| *byte == 0);
        looked.map(|()| true)
    }

    /// Nothing can be read from now on, until the next [`Fence::publish`].
    ///
    /// # Errors
    /// [`DriverError`] of a copy.
    pub fn shut(&self, driver: &Driver) -> Result<(), DriverError> {
        // The same table with no ranges: who reads now has looked at its length already.
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        driver.write(
            self.base + fence::CURRENT,
            &state.index.to_le_bytes(),
            self.stream,
        )
    }

    /// Waits until everybody reads by the current table. False if that took longer than `limit`.
    ///
    /// # Errors
    /// [`DriverError`] of a copy.
    pub fn wait(&self, driver: &Driver, limit: Duration) -> Result<bool, DriverError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if warpbpf_faults::strikes("session/fence-wait") {
            return Ok(false);
        }
        Ok(state.quiet || Fence::drain(driver, &mut state, limit)?)
    }

    /// Waits until nobody reads by the other table.
    fn drain(driver: &Driver, state: &mut State, limit: Duration) -> Result<bool, DriverError> {
        state.quiet = state.readers.drain(driver, limit, &|| true)?;
        Ok(state.quiet)
    }
}

#[cfg(test)]
mod tests;

//! Moves data from the device to the shared memory: snapshots of maps, records of rings.

use std::time::{Duration, Instant};

use warpbpf_abi::maps::{EINVAL, EIO};
use warpbpf_driver::{Driver, DriverError};
use warpbpf_session::{Answer, Chunk, DrainStats, Landing, Live, Part, Session};
use warpbpf_wire::{
    Chunks, DeviceLosses, LastCopy, LaunchWriter, SNAPSHOT_PART, SharedError, SharedWriter, Span,
};

use crate::sys::descriptors::{FileThread, OwnDescriptor, keep};

/// How long the last events wait for a tool that reads nothing at all. Only our own thread waits,
/// or a context that ends.
const PATIENCE: Duration = Duration::from_millis(500);
/// Bytes of a map from which on it is worth having the driver lock the pages that its copies pass.
const LARGE: u64 = 64 << 10;
const PAGE: usize = 4096;
const TICK: Duration = Duration::from_micros(200);
/// How long claimed room stays as it is before nobody is expected to write it any more.
const PAUSE: Duration = Duration::from_millis(10);
/// How often a copy at the end may fail before what it was for is given up.
const TRIES: u32 = 3;
/// Most rounds over rings that still yield something, at the end.
const ROUNDS: u32 = 1000;
/// Parts of the event ring that a chunk takes at most, if it can be cut: the room of a chunk comes
/// back when all of it was read.
const CHUNKS: u64 = 8;

/// The writing side of the shared memory and its scratch space.
#[derive(Debug)]
pub(crate) struct Pump {
    writer: SharedWriter,
    sizes: Vec<u64>,
    scratch: Scratch,
    /// Most bytes of a chunk.
    most: u64,
    /// The driver has locked the ring's pages: its copy engine writes into them.
    locked: bool,
    /// The tool reads nothing: do not wait again until it does.
    stalled_at: Option<[u64; 2]>,
    home: Option<Home>,
}

/// How much of what launches did has come home, for the tool to see.
#[derive(Debug)]
struct Home {
    launches: &'static LaunchWriter,
    context: u32,
    /// Launches with programs that had been counted before the last copy of all maps began, and
    /// before rings were last emptied.
    maps: u64,
    rings: u64,
    /// Of so many it was known once that their kernels had ended.
    ended: u64,
}

impl Home {
    fn counted(&self) -> u64 {
        self.launches.launches(self.context)
    }
}

/// What snapshots pass on their way.
#[derive(Debug)]
struct Scratch {
    /// It never grows.
    bytes: Vec<u8>,
    /// Where the first page begins that is all its own.
    first: usize,
    /// The driver has locked its pages.
    locked: bool,
}

impl Scratch {
    /// For maps of which snapshots have these sizes.
    fn new(sizes: &[u64]) -> Scratch {
        let most = sizes.iter().copied().max().unwrap_or(0).min(SNAPSHOT_PART);
        // The pages before and behind are the allocator's too, and others may lock those.
        let bytes = vec![0; most.next_multiple_of(PAGE as u64) as usize + PAGE];
        Scratch {
            first: bytes.as_ptr().align_offset(PAGE),
            bytes,
            locked: false,
        }
    }

    fn pages(&mut self) -> &mut [u8] {
        &mut self.bytes[self.first..]
    }

    fn lock(&mut self, driver: &Driver) -> Result<(), DriverError> {
        let pages = self.pages();
        let bytes = (pages.len() / PAGE * PAGE) as u64;
        if bytes >= LARGE {
            // SAFETY: the pages stay until they are unlocked or as long as the agent; the vector
            // never grows.
            unsafe { driver.host_register(pages.as_mut_ptr(), bytes)? };
            self.locked = true;
        }
        Ok(())
    }

    fn unlock(&mut self, driver: &Driver) {
        if std::mem::take(&mut self.locked) {
            // What the driver keeps locked is given back with the context.
            let _ = driver.host_unregister(self.pages().as_mut_ptr());
        }
    }
}

/// Shared memory for maps that come with a replacement, before they are taken over.
#[derive(Debug)]
pub(crate) struct More {
    writer: SharedWriter,
    sizes: Vec<u64>,
    /// Where what there is would be too small.
    scratch: Option<Scratch>,
}

impl More {
    /// As [`Pump::lock_pages`]; without it copies are slower.
    pub(crate) fn lock_pages(&mut self, driver: &Driver) {
        if let Some(scratch) = &mut self.scratch {
            let _ = scratch.lock(driver);
        }
    }

    /// It is not taken over.
    pub(crate) fn give_up(mut self, driver: &Driver) {
        if let Some(scratch) = &mut self.scratch {
            scratch.unlock(driver);
        }
    }
}

/// Chunks of device rings land in the event ring.
struct Landed<'w> {
    chunks: Chunks<'w>,
    most: u64,
}

// SAFETY: the room is reserved, so no consumer looks at it before it is published, and nobody else
// writes there.
unsafe impl Landing for Landed<'_> {
    fn room(&self) -> u64 {
        self.chunks.room().min(self.most)
    }

    fn place(&mut self, map: u32, chunk: &Chunk) -> Option<[Part; 2]> {
        let spans = self.chunks.reserve(map, chunk.shard, chunk.len())?;
        Some(spans.map(|Span { start, bytes }| Part { start, bytes }))
    }

    fn landed(&mut self) {
        self.chunks.publish();
    }
}

/// Memory that is shared with the tool: made where a limit on files brings no signal.
fn shared(
    sizes: &[u64],
    ring_bytes: u64,
    thread: &FileThread,
) -> Result<(SharedWriter, OwnDescriptor), SharedError> {
    thread.run(|| {
        let (writer, fd) = SharedWriter::create(sizes, ring_bytes)?;
        Ok((writer, keep(fd)))
    })
}

impl Pump {
    /// Shared memory for the maps of a session; the descriptor is for the tool.
    pub(crate) fn new(
        live: &Live,
        ring_bytes: u64,
        thread: &FileThread,
    ) -> Result<(Pump, OwnDescriptor), SharedError> {
        #[cfg(test)]
        if NO_SHARED_MEMORY.get() {
            return Err(SharedError::TooLarge { bytes: 0 });
        }
        warpbpf_faults::check("agent/shared", || SharedError::TooLarge { bytes: 1 << 70 })?;
        let sizes: Vec<u64> = live.layouts().iter().map(|m| m.snapshot_bytes).collect();
        // The largest chunk that cannot be cut has room, and another one while it is read.
        let largest = live.largest_chunk();
        let (writer, fd) = shared(&sizes, ring_bytes.max(largest * 2 + 1), thread)?;
        let pump = Pump {
            most: largest.max(writer.ring_pages().bytes / CHUNKS),
            writer,
            scratch: Scratch::new(&sizes),
            sizes,
            locked: false,
            stalled_at: None,
            home: None,
        };
        Ok((pump, fd))
    }

    /// Has the driver lock the event ring's pages, if there are rings that come home into it, and
    /// those that snapshots of large maps pass. Without that the driver copies through memory of
    /// its own: slower, and else the same.
    pub(crate) fn lock_pages(&mut self, driver: &Driver, live: &Live) -> Result<(), DriverError> {
        if live.largest_chunk() > 0 {
            let Span { start, bytes } = self.writer.ring_pages();
            // SAFETY: the pages stay as long as this value, which lives as long as the agent.
            unsafe { driver.host_register(start, bytes)? };
            self.locked = true;
        }
        self.scratch.lock(driver)
    }

    /// Shared memory for what a session has behind these maps; the descriptor is for the tool.
    /// `None` if nothing of it is copied.
    ///
    /// # Errors
    /// [`SharedError`]: there is none.
    pub(crate) fn more(
        &self,
        session: &Session,
        thread: &FileThread,
    ) -> Result<Option<(More, OwnDescriptor)>, SharedError> {
        let layouts = session.layouts().into_iter().skip(self.sizes.len());
        let sizes: Vec<u64> = layouts.map(|map| map.snapshot_bytes).collect();
        if sizes.iter().all(|bytes| *bytes == 0) {
            return Ok(None);
        }
        warpbpf_faults::check("agent/more-shared", || SharedError::TooLarge {
            bytes: 1 << 70,
        })?;
        let (writer, fd) = shared(&sizes, 0, thread)?;
        let scratch = Scratch::new(&sizes);
        let scratch = (scratch.bytes.len() > self.scratch.bytes.len()).then_some(scratch);
        let more = More {
            writer,
            sizes,
            scratch,
        };
        Ok(Some((more, fd)))
    }

    /// Takes that over. The number of the first of these maps.
    pub(crate) fn append(&mut self, driver: &Driver, more: More) -> usize {
        let first = self.sizes.len();
        self.writer.append(more.writer);
        self.sizes.extend(more.sizes);
        if let Some(scratch) = more.scratch {
            let mut before = std::mem::replace(&mut self.scratch, scratch);
            before.unlock(driver);
        }
        first
    }

    /// Unlocks them, while the context still lives.
    pub(crate) fn unlock_pages(&mut self, driver: &Driver) {
        if std::mem::take(&mut self.locked) {
            // What the driver keeps locked is given back with the context.
            let _ = driver.host_unregister(self.writer.ring_pages().start);
        }
        self.scratch.unlock(driver);
    }

    /// Its maps are those of this context, whose launches are counted there.
    pub(crate) fn is_of(&mut self, context: u32, launches: Option<&'static LaunchWriter>) {
        self.home = launches.map(|launches| Home {
            launches,
            context,
            maps: 0,
            rings: 0,
            ended: 0,
        });
    }

    /// Launches with programs so far.
    pub(crate) fn counted(&self) -> u64 {
        self.home.as_ref().map_or(0, Home::counted)
    }

    /// Tells how much is home, of `most` launches at most, and whether kernels ran while it was
    /// copied.
    pub(crate) fn came_home(&mut self, live: &Live, most: u64, kernels_ran: Option<bool>) {
        let Some(home) = &mut self.home else { return };
        // Where there is neither, nothing could be missing.
        let maps = self.sizes.iter().any(|bytes| *bytes > 0);
        let kinds = [(maps, home.maps), (live.largest_chunk() > 0, home.rings)];
        let there = kinds.iter().filter(|(is_there, _)| *is_there);
        let least = there.map(|(_, launches)| *launches).min();
        let launches = least.unwrap_or_else(|| home.counted()).min(most);
        if kernels_ran == Some(false) {
            home.ended = launches;
        }
        let copy = LastCopy {
            launches,
            kernels_ran: kernels_ran.or((launches <= home.ended).then_some(false)),
        };
        home.launches.copied(home.context, copy);
    }

    /// Copies every map. Gives those that cannot be copied, by number: they keep their last
    /// snapshot.
    pub(crate) fn snapshot(&mut self, live: &Live) -> Vec<usize> {
        let before = self.counted();
        let all = 0..self.sizes.len();
        let stale: Vec<usize> = all.filter(|map| !self.publish(live, *map)).collect();
        if stale.is_empty() {
            self.maps_came_home(live, before);
        }
        stale
    }

    fn maps_came_home(&mut self, live: &Live, before: u64) {
        if let Some(home) = &mut self.home {
            home.maps = before;
            self.came_home(live, u64::MAX, None);
        }
    }

    /// Copies one map now. Its sequence, or an error number.
    pub(crate) fn snapshot_one(&mut self, live: &Live, map: usize) -> Answer {
        if self.sizes.get(map).is_none_or(|bytes| *bytes == 0) {
            return Err(EINVAL);
        }
        if !self.publish(live, map) {
            return Err(EIO);
        }
        Ok(self.writer.sequence(map).to_le_bytes().to_vec())
    }

    /// False if it cannot be copied.
    fn publish(&mut self, live: &Live, map: usize) -> bool {
        if self.sizes[map] == 0 {
            return true;
        }
        if warpbpf_faults::strikes("agent/copy") {
            return false;
        }
        let mut offset = 0;
        let scratch = self.scratch.pages();
        let published = self.writer.publish_parts(map, scratch, |part| {
            let copied = live.snapshot(map, offset, part);
            offset += part.len() as u64;
            copied
        });
        // The areas were made for these maps: there is one for each.
        debug_assert!(published.is_ok());
        published.unwrap_or(false)
    }

    /// Hands over an event of a program on the CPU; false, and it is counted, if there is no room.
    pub(crate) fn event(&mut self, map: u32, payload: &[u8]) -> bool {
        // The application's own thread does not wait for the tool.
        self.writer.push(map, 0, payload)
    }

    /// Moves what is complete and has room. Does nothing if the session has no rings. What has no
    /// room stays on the device.
    ///
    /// # Errors
    /// [`DriverError`] of a copy: what was not moved stays there, too.
    pub(crate) fn drain(&mut self, live: &Live) -> Result<DrainStats, DriverError> {
        let has_rings = live.largest_chunk() > 0;
        let before = if has_rings { self.counted() } else { 0 };
        let mut landed = Landed {
            chunks: self.writer.chunks(),
            most: self.most,
        };
        let stats = live.bring(&mut landed)?;
        if has_rings
            && stats.waiting == 0
            && let Some(home) = &mut self.home
        {
            home.rings = before;
            self.came_home(live, u64::MAX, None);
        }
        self.tell(live);
        Ok(stats)
    }

    fn tell(&mut self, live: &Live) {
        self.writer.clock_error(live.clock().error);
        for (map, lost) in live.losses() {
            let losses = DeviceLosses {
                full: lost.full,
                busy: lost.busy,
            };
            self.writer.device_losses(map, losses);
        }
    }

    /// Waits until the tool has read more than `read`; false if it reads nothing for a while.
    fn wait(&mut self, read: [u64; 2]) -> bool {
        if self.stalled_at == Some(read) {
            return false;
        }
        let since = Instant::now();
        while self.writer.read_so_far() == read {
            if since.elapsed() > PATIENCE {
                self.stalled_at = Some(read);
                return false;
            }
            std::thread::sleep(TICK);
        }
        true
    }

    /// Counts, record by record, what is on the device as lost.
    fn lose(&mut self, live: &Live) {
        // A context that is broken has nothing to count.
        let _ = live.drain(&mut |event| self.writer.count_lost(event.map));
        self.tell(live);
    }
}

/// What could not be brought home.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Bytes of rings that stay for ever: their writers claimed them and ended before they had
    /// written.
    pub(crate) stuck: u64,
    /// Names of maps that could not be copied: what is known of them is what they held before.
    pub(crate) stale: Vec<String>,
    /// Why the rings could not be looked at to their end.
    pub(crate) unread: Option<DriverError>,
}

/// Everything that is there, after the kernels have ended.
pub(crate) fn empty(driver: &Driver, live: &Live, pump: &mut Pump) -> Left {
    driver.relaxed(|| {
        let mut left = Left::default();
        let before = pump.counted();
        let stale = pump.snapshot(live);
        match empty_rings(live, pump) {
            Ok(stuck) => left.stuck = stuck,
            Err(error) => left.unread = Some(error),
        }
        // Only those that failed: the other copies are of the end already.
        for map in stale {
            if !pump.publish(live, map) {
                left.stale
                    .extend(live.layouts().get(map).map(|map| map.name.clone()));
            }
        }
        if left.stale.is_empty() {
            pump.maps_came_home(live, before);
        }
        left
    })
}

/// How many bytes are stuck, once nothing else is left.
fn empty_rings(live: &Live, pump: &mut Pump) -> Result<u64, DriverError> {
    let (mut rounds, mut stuck, mut failed) = (0, 0, 0);
    while rounds < ROUNDS {
        let read = pump.writer.read_so_far();
        let stats = match pump.drain(live) {
            Ok(stats) => stats,
            Err(error) => {
                // It may be that once: nothing has moved, so nothing is lost yet.
                failed += 1;
                if failed > TRIES {
                    return Err(error);
                }
                std::thread::sleep(PAUSE);
                continue;
            }
        };
        if stats.waiting > 0 {
            // How often the tool reads a little more is its own affair.
            if pump.wait(read) {
                continue;
            }
            pump.lose(live);
        } else if stats.bytes == 0 {
            if stats.pending == stuck {
                return Ok(stuck);
            }
            // A kernel that began just now may still write it.
            stuck = stats.pending;
            std::thread::sleep(PAUSE);
        }
        rounds += 1;
    }
    Ok(0)
}

#[cfg(test)]
thread_local! {
    /// Memory that is shared with the tool cannot be had on this thread.
    pub(crate) static NO_SHARED_MEMORY: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

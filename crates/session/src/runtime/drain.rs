//! Records of rings on their way home. The copy engine writes whole chunks to where the caller
//! wants them, many at once over all rings, because one copy at a time, or a look at each record,
//! would cost more than the copies do.

use std::ops::Range;

use warpbpf_abi::layout::RingLayout;
use warpbpf_driver::{Driver, DriverError, Stream};
use warpbpf_maps::ring::{Lost, Reader};

use crate::runtime::held::Held;

pub use warpbpf_maps::ring::Chunk;

/// Bytes that records are read from, where they are wanted one by one, unless a chunk is larger.
const PILE: u64 = 8 << 20;

/// Memory of the host.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Where it begins.
    pub start: *mut u8,
    /// Its bytes.
    pub bytes: u64,
}

/// Where chunks come to lie.
///
/// # Safety
/// The parts that [`Landing::place`] gives have the bytes of the chunk together and are valid for
/// writes. Nobody reads or writes them until [`Landing::landed`] is called or the round is over.
pub unsafe trait Landing {
    /// Most bytes of a chunk that there is room for now.
    fn room(&self) -> u64;
    /// Room for a chunk of a map ([`RingEvent::PRINTK`] for messages). `None` if there is none for
    /// it after all.
    fn place(&mut self, map: u32, chunk: &Chunk) -> Option<[Part; 2]>;
    /// Everything that was placed is there.
    fn landed(&mut self);
}

/// A record from a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingEvent<'a> {
    /// Index of the map; [`RingEvent::PRINTK`] for messages.
    pub map: u32,
    /// The SM that wrote it.
    pub shard: u32,
    /// What the program wrote.
    pub payload: &'a [u8],
}

impl RingEvent<'_> {
    /// `map` of messages.
    pub const PRINTK: u32 = u32::MAX;
}

/// One round over all rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DrainStats {
    /// Bytes that came home in this round, headers included.
    pub bytes: u64,
    /// Bytes that are whole and for which there was no room. They stay on the device.
    pub waiting: u64,
    /// Bytes reserved by writers that stay on the device: those that wait, and those that are not
    /// committed yet.
    pub pending: u64,
}

/// All rings of a session, and what is needed to look at them.
#[derive(Debug)]
pub(crate) struct Rings {
    rings: Vec<Ring>,
    look: *mut u8,
    /// The copies of a round are spread over them.
    streams: [Stream; 2],
    /// The ring and the shard that comes first in the next round, because there was no room for it.
    first: (usize, u32),
}
// SAFETY: `look` is page-locked memory that belongs to this value alone.
unsafe impl Send for Rings {}

#[derive(Debug)]
struct Ring {
    map: u32,
    base: u64,
    layout: RingLayout,
    reader: Reader,
    /// Its writers have not been told yet of all the room that they have again.
    owes: bool,
    /// Where its commit counts and control lines lie in the memory for looks.
    commits: Range<usize>,
    controls: Range<usize>,
}

impl Rings {
    /// Of maps, their base addresses and their layouts.
    pub(crate) fn new(
        maps: &[(u32, u64, RingLayout)],
        stream: Stream,
        held: &mut Held<'_>,
    ) -> Result<Rings, DriverError> {
        let mut bytes = 0;
        let mut room = |range: Range<u64>| {
            let start = bytes;
            bytes += (range.end - range.start) as usize;
            start..bytes
        };
        let mut rings = Vec::new();
        for (map, base, layout) in maps {
            let reader = Reader::new(*layout);
            rings.push(Ring {
                map: *map,
                base: *base,
                layout: *layout,
                commits: room(reader.commits()),
                controls: room(reader.controls()),
                reader,
                owes: false,
            });
        }
        let (look, second) = match bytes {
            0 => (std::ptr::null_mut(), stream),
            bytes => (held.host_alloc(bytes)?.0, held.stream()?),
        };
        Ok(Rings {
            rings,
            look,
            streams: [stream, second],
            first: (0, 0),
        })
    }

    /// Bytes that a landing must have room for at some time, or chunks may never fit; 0 if there
    /// are no rings.
    pub(crate) fn largest(&self) -> u64 {
        let subs = self.rings.iter().map(|ring| ring.layout.sub_bytes());
        subs.max().unwrap_or(0)
    }

    /// What each lost on the device, as of the last look.
    pub(crate) fn losses(&self) -> Vec<(u32, Lost)> {
        let rings = self.rings.iter();
        rings.map(|ring| (ring.map, ring.reader.lost())).collect()
    }

    /// Brings home what is complete, as far as there is room.
    pub(crate) fn bring(
        &mut self,
        driver: &Driver,
        landing: &mut dyn Landing,
    ) -> Result<DrainStats, DriverError> {
        if self.rings.is_empty() {
            return Ok(DrainStats::default());
        }
        let chunks = self.cover(driver)?;
        let mut stats = DrainStats::default();
        let started = self.start(driver, landing, chunks, &mut stats);
        // After an error too: nothing may be written any more where others go on.
        let mut waited = Ok(());
        if stats.bytes > 0 || started.is_err() {
            for stream in self.streams {
                waited = waited.and(driver.wait(stream));
            }
        }
        let taken = started?;
        waited?;
        landing.landed();
        self.give_back(driver, &taken)?;
        let rings = self.rings.iter();
        stats.pending = rings.map(|ring| ring.reader.pending()).sum();
        Ok(stats)
    }

    /// What can be copied now, with the number of its ring, in the order in which it is to be
    /// tried.
    fn cover(&mut self, driver: &Driver) -> Result<Vec<(usize, Chunk)>, DriverError> {
        let stream = self.streams[0];
        for ring in &self.rings {
            // In this order, which one stream keeps.
            for (range, place) in [
                (ring.reader.commits(), &ring.commits),
                (ring.reader.controls(), &ring.controls),
            ] {
                let bytes = range.end - range.start;
                // SAFETY: the memory holds this place, belongs to us, and is looked at after the
                // wait.
                let started = unsafe {
                    let into = self.look.add(place.start);
                    driver.start_read(ring.base + range.start, into, bytes, stream)
                };
                if started.is_err() {
                    let _ = driver.wait(stream);
                }
                started?;
            }
        }
        driver.wait(stream)?;
        let mut all = Vec::new();
        for (number, ring) in self.rings.iter_mut().enumerate() {
            let [commits, controls] = [&ring.commits, &ring.controls].map(|place| {
                // SAFETY: it was allocated with these places, and the copies into it are complete.
                unsafe { std::slice::from_raw_parts(self.look.add(place.start), place.len()) }
            });
            // The lengths are the reader's own, so it cannot refuse them.
            let chunks = ring.reader.cover(commits, controls).unwrap_or_default();
            all.extend(chunks.into_iter().map(|chunk| (number, chunk)));
        }
        let first = all.partition_point(|(number, chunk)| (*number, chunk.shard) < self.first);
        all.rotate_left(first);
        Ok(all)
    }

    /// Starts the copies of what there is room for; gives what they copy.
    fn start(
        &mut self,
        driver: &Driver,
        landing: &mut dyn Landing,
        chunks: Vec<(usize, Chunk)>,
        stats: &mut DrainStats,
    ) -> Result<Vec<(usize, Chunk)>, DriverError> {
        let mut taken = Vec::new();
        let mut started = [0; 2];
        let mut without_room: Option<(usize, u32)> = None;
        // A ring's chunks follow each other: what comes behind one that stays has to stay too.
        let mut stays = None;
        for (number, mut rest) in chunks {
            let shard = (number, rest.shard);
            let ring = &self.rings[number];
            loop {
                let room = landing.room();
                let chunk = rest.beginning(room).filter(|_| stays != Some(shard));
                let placed = chunk.and_then(|c| Some((landing.place(ring.map, &c)?, c)));
                let Some((parts, chunk)) = placed else {
                    stats.waiting += rest.len();
                    stays = Some(shard);
                    without_room.get_or_insert(shard);
                    break;
                };
                let mut from = ring.base + chunk.range.start;
                for part in parts {
                    if part.bytes == 0 {
                        continue;
                    }
                    let stream = usize::from(started[1] < started[0]);
                    started[stream] += part.bytes;
                    stats.bytes += part.bytes;
                    // SAFETY: who landed it promises that the part is there and left alone until we
                    // have waited.
                    unsafe {
                        driver.start_read(from, part.start, part.bytes, self.streams[stream])?;
                    }
                    from += part.bytes;
                }
                let behind = rest.behind(&chunk);
                taken.push((number, chunk));
                match behind {
                    Some(behind) => rest = behind,
                    None => break,
                }
            }
        }
        if let Some(shard) = without_room {
            self.first = shard;
        }
        Ok(taken)
    }

    /// Gives the room of what was copied back to the writers.
    fn give_back(&mut self, driver: &Driver, taken: &[(usize, Chunk)]) -> Result<(), DriverError> {
        for (number, chunk) in taken {
            let ring = &mut self.rings[*number];
            // They are in their order, so the reader cannot refuse them.
            ring.owes |= ring.reader.take(chunk).is_ok();
        }
        let rings = self.rings.iter().filter(|ring| ring.owes);
        let writes: Vec<_> = rings
            .map(|ring| (ring.base, ring.reader.consumed()))
            .collect();
        let mut done = Ok(());
        for (base, write) in &writes {
            // SAFETY: the bytes stay until we have waited below.
            let started =
                unsafe { driver.start_write(base + write.offset, &write.bytes, self.streams[0]) };
            done = done.and(started);
        }
        if writes.is_empty() {
            return Ok(());
        }
        // Waited for in any case: what was started reads these bytes.
        let waited = driver.wait(self.streams[0]);
        done.and(waited)?;
        // A copy that failed is made again in the next round, even if nothing more comes: a ring
        // that stays full has no writers.
        self.rings.iter_mut().for_each(|ring| ring.owes = false);
        Ok(())
    }

    /// Hands out, one by one, the records that are complete now. A damaged chunk ends where it is
    /// damaged.
    pub(crate) fn drain(
        &mut self,
        driver: &Driver,
        sink: &mut dyn FnMut(RingEvent<'_>),
    ) -> Result<DrainStats, DriverError> {
        let mut pile = Pile::new(match self.largest() {
            0 => 0,
            bytes => bytes.max(PILE),
        });
        let mut stats = DrainStats::default();
        // What was complete at first, and no more: writers may go on for ever.
        let mut owed = None;
        loop {
            let round = self.bring(driver, &mut pile)?;
            pile.hand_out(sink);
            stats.bytes += round.bytes;
            (stats.waiting, stats.pending) = (round.waiting, round.pending);
            let left = match owed {
                None => round.waiting,
                Some(left) => round.waiting.min(u64::saturating_sub(left, round.bytes)),
            };
            if left == 0 || round.bytes == 0 {
                return Ok(stats);
            }
            owed = Some(left);
        }
    }
}

/// Memory from which records are handed out at once.
struct Pile {
    bytes: Vec<u8>,
    used: usize,
    chunks: Vec<(u32, Chunk)>,
}

// SAFETY: a place is behind all that were given before, within memory of our own that is read in
// `hand_out` only.
unsafe impl Landing for Pile {
    fn room(&self) -> u64 {
        (self.bytes.len() - self.used) as u64
    }

    fn place(&mut self, map: u32, chunk: &Chunk) -> Option<[Part; 2]> {
        let into = self.bytes[self.used..].get_mut(..chunk.len() as usize)?;
        let part = |bytes: &mut [u8]| Part {
            start: bytes.as_mut_ptr(),
            bytes: bytes.len() as u64,
        };
        let parts = [part(into), part(&mut [])];
        self.used += chunk.len() as usize;
        self.chunks.push((map, chunk.clone()));
        Some(parts)
    }

    fn landed(&mut self) {}
}

impl Pile {
    fn new(bytes: u64) -> Pile {
        Pile {
            bytes: vec![0; bytes as usize],
            used: 0,
            chunks: Vec::new(),
        }
    }

    fn hand_out(&mut self, sink: &mut dyn FnMut(RingEvent<'_>)) {
        let mut bytes = &self.bytes[..];
        for (map, chunk) in self.chunks.drain(..) {
            let of_chunk;
            (of_chunk, bytes) = bytes.split_at(chunk.len() as usize);
            // Where it is damaged there is nothing to hand out any more.
            let _ = chunk.records(of_chunk, |record| {
                sink(RingEvent {
                    map,
                    shard: record.shard,
                    payload: record.payload,
                });
            });
        }
        self.used = 0;
    }
}

#[cfg(test)]
mod tests;

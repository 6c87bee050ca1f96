//! Moves data from the device to the shared memory: snapshots of maps, records of rings.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use warpbpf_abi::maps::{EINVAL, EIO};
use warpbpf_driver::Driver;
use warpbpf_session::{Answer, DrainStats, Live};
use warpbpf_wire::{DeviceLosses, SharedError, SharedWriter};

/// How long an event waits for a tool that reads nothing at all. Only our own thread waits, or a context that ends.
const PATIENCE: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_micros(200);
/// Most rounds over rings that still yield something, at the end.
const ROUNDS: u32 = 1000;

/// The writing side of the shared memory and its scratch space.
#[derive(Debug)]
pub(crate) struct Pump {
    writer: SharedWriter,
    sizes: Vec<u64>,
    scratch: Vec<u8>,
    /// The tool reads nothing: do not wait again until it does.
    stalled_at: Option<u64>,
}

impl Pump {
    /// Shared memory for the maps of a session; the descriptor is for the tool.
    pub(crate) fn new(live: &Live, ring_bytes: u64) -> Result<(Pump, OwnedFd), SharedError> {
        #[cfg(test)]
        if crate::tests::faults::shared_memory_fails() {
            return Err(SharedError::TooLarge { bytes: 0 });
        }
        let sizes: Vec<u64> = live.layouts().iter().map(|m| m.snapshot_bytes).collect();
        let (writer, fd) = SharedWriter::create(&sizes, ring_bytes)?;
        let pump = Pump {
            writer,
            sizes,
            scratch: Vec::new(),
            stalled_at: None,
        };
        Ok((pump, fd))
    }

    /// Copies every map. One that cannot be copied keeps its last snapshot.
    pub(crate) fn snapshot(&mut self, live: &Live) {
        for map in 0..self.sizes.len() {
            self.publish(live, map);
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
        let mut offset = 0;
        let published = self.writer.publish_parts(map, &mut self.scratch, |part| {
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

    /// Moves every record that is complete. Does nothing if the session has no rings.
    pub(crate) fn drain(&mut self, live: &Live) -> DrainStats {
        let Pump {
            writer, stalled_at, ..
        } = self;
        let drained = live.drain(&mut |event| {
            push(writer, stalled_at, event.map, event.shard, event.payload);
        });
        let Ok(stats) = drained else {
            return DrainStats::default();
        };
        self.writer.clock_error(live.clock().error);
        for (map, lost) in live.losses() {
            let losses = DeviceLosses {
                full: lost.full,
                busy: lost.busy,
            };
            self.writer.device_losses(map, losses);
        }
        stats
    }
}

/// Appends an event, waiting a little for a tool that still reads.
fn push(
    writer: &mut SharedWriter,
    stalled_at: &mut Option<u64>,
    map: u32,
    shard: u32,
    payload: &[u8],
) {
    if writer.try_push(map, shard, payload) {
        return;
    }
    let mut tail = writer.tail();
    let mut since = Instant::now();
    while *stalled_at != Some(tail) {
        std::thread::sleep(TICK);
        if writer.try_push(map, shard, payload) {
            return;
        }
        let now = writer.tail();
        if now != tail {
            tail = now;
            since = Instant::now();
        } else if since.elapsed() > PATIENCE {
            *stalled_at = Some(tail);
        }
    }
    writer.count_lost(map);
}

/// Everything that is there, after the kernels have ended.
pub(crate) fn empty(driver: &Driver, live: &Live, pump: &mut Pump) {
    driver.relaxed(|| {
        pump.snapshot(live);
        for _ in 0..ROUNDS {
            if pump.drain(live).records == 0 {
                break;
            }
        }
    });
}

//! Device memory in which launches count arrivals at exits.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use warpbpf_driver::{Driver, DriverError, Stream};

use crate::plan::footprint::LAUNCH_POOL;

/// Zeroed device memory that is handed out piece by piece and reused per kernel and stream.
#[derive(Debug)]
pub(crate) struct LaunchRecords {
    pub(crate) base: u64,
    pub(crate) state: Mutex<RecordState>,
}

#[derive(Debug, Default)]
pub(crate) struct RecordState {
    pub(crate) used: u64,
    /// By kernel and stream, or that of all nodes that do not run.
    pub(crate) pieces: HashMap<Option<(u64, Stream)>, (u64, u64)>,
}

impl LaunchRecords {
    pub(crate) fn new(driver: &Driver, stream: Stream) -> Result<LaunchRecords, DriverError> {
        Ok(LaunchRecords {
            base: driver.alloc_zeroed(LAUNCH_POOL, stream)?,
            state: Mutex::default(),
        })
    }

    /// Gives the memory back; nothing is handed out any more.
    pub(crate) fn free(&self, driver: &Driver) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.used <= LAUNCH_POOL {
            state.used = u64::MAX / 2;
            state.pieces.clear();
            // The driver keeps it until the context ends, then.
            let _ = driver.free(self.base);
        }
    }

    pub(crate) fn get(&self, whose: Option<(u64, Stream)>, bytes: u64) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.get(self.base, whose, bytes)
    }

    pub(crate) fn take(&self, bytes: u64) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.take(self.base, piece(bytes)?)
    }
}

/// Size of a piece that holds so many bytes, if the pool may have one.
pub(crate) fn piece(bytes: u64) -> Option<u64> {
    (bytes <= LAUNCH_POOL).then(|| bytes.next_multiple_of(256))
}

impl RecordState {
    /// A piece that is too small is left behind, as a launch may still count in it. So what
    /// replaces it is a power of two where that fits: then all that were left behind are together
    /// no larger than the last one.
    pub(crate) fn get(
        &mut self,
        base: u64,
        whose: Option<(u64, Stream)>,
        bytes: u64,
    ) -> Option<u64> {
        let exact = piece(bytes)?;
        let wanted = match self.pieces.get(&whose) {
            Some((address, size)) if *size >= bytes => return Some(*address),
            Some(_) => exact.next_power_of_two(),
            None => exact,
        };
        let size = match self.has_room(wanted) {
            true => wanted,
            false => exact,
        };
        let address = self.take(base, size)?;
        self.pieces.insert(whose, (address, size));
        Some(address)
    }

    pub(crate) fn has_room(&self, size: u64) -> bool {
        self.used + size <= LAUNCH_POOL
    }

    pub(crate) fn take(&mut self, base: u64, size: u64) -> Option<u64> {
        if !self.has_room(size) || warpbpf_faults::strikes("session/record-pool") {
            return None;
        }
        let address = base + self.used;
        self.used += size;
        Some(address)
    }
}

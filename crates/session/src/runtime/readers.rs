//! Who reads something on the device that the host exchanges: counted there, in two sets, and
//! waited for here ([`warpbpf_abi::layout::fence`]). No lane waits for it.

use std::time::{Duration, Instant};

use warpbpf_abi::layout::fence;
use warpbpf_driver::{Driver, DriverError, Stream};

/// Time between two looks at the counters, after the first ones.
const PAUSE: Duration = Duration::from_micros(50);
/// Looks without a pause: readers are out within microseconds.
const LOOKS: u32 = 8;

/// The counters in a block.
#[derive(Debug)]
pub(crate) struct Readers {
    base: u64,
    stream: Stream,
    /// The current set of counters.
    epoch: u64,
}

impl Readers {
    /// Those of a block that is all zero.
    pub(crate) fn new(base: u64, stream: Stream) -> Readers {
        Readers {
            base,
            stream,
            epoch: 0,
        }
    }

    /// Waits for two sets of counters, one after the other: who comes later is counted in the one
    /// that nobody waits for. A reader that chose its set long ago and is counted in only now sees
    /// what is current, because it was counted in after that was made current. False if that took
    /// longer than `limit`, or `goes_on` said no.
    pub(crate) fn drain(
        &mut self,
        driver: &Driver,
        limit: Duration,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<bool, DriverError> {
        let end = Instant::now() + limit;
        let late = || Instant::now() >= end || !goes_on();
        if !self.empties(driver, self.epoch ^ 1, &late)? {
            return Ok(false);
        }
        let next = self.epoch ^ 1;
        driver.write(self.base + fence::EPOCH, &next.to_le_bytes(), self.stream)?;
        let old = std::mem::replace(&mut self.epoch, next);
        self.empties(driver, old, &late)
    }

    /// Waits until each counter of a set was zero once.
    fn empties(
        &self,
        driver: &Driver,
        set: u64,
        late: &dyn Fn() -> bool,
    ) -> Result<bool, DriverError> {
        let mut counters = vec![0; fence::SET as usize];
        let mut left = vec![true; fence::COUNTERS as usize];
        for look in 0.. {
            let from = self.base + fence::READERS + set * fence::SET;
            driver.read(from, &mut counters, self.stream)?;
            let lines = counters.chunks_exact(fence::COUNTER_STRIDE as usize);
            for (left, line) in left.iter_mut().zip(lines) {
                *left &= line[..4] != [0; 4];
            }
            if !left.contains(&true) {
                return Ok(true);
            }
            if late() {
                return Ok(false);
            }
            if look >= LOOKS {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(false)
    }
}

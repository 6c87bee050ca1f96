//! The slots in one context: two halves, of which one is in force.

use std::time::Duration;

use warpbpf_abi::layout::slots;
use warpbpf_driver::{Driver, DriverError, Stream};

use crate::plan::session::Filling;
use crate::runtime::readers::Readers;

/// Which half of a context is in force, and which one may be written.
#[derive(Debug, Default)]
pub(crate) struct Halves {
    /// The half that is in force, or was.
    pub(crate) current: usize,
    /// What is in each half.
    pub(crate) held: [u64; 2],
    /// The last write of the gate failed: some of its copies, or all, may name either half.
    pub(crate) unsure: bool,
}

impl Halves {
    pub(crate) fn with(&self, id: u64) -> Option<usize> {
        self.held.iter().position(|held| *held == id)
    }

    /// The one that no copy of the gate names, if that is known.
    pub(crate) fn free(&self) -> Option<usize> {
        (!self.unsure).then_some(self.current ^ 1)
    }

    /// The gate was written with this half in force, or with none, or that failed.
    pub(crate) fn told(&mut self, half: Option<usize>, written: bool) {
        self.unsure = !written;
        if let (Some(half), true) = (half, written) {
            self.current = half;
        }
    }
}

/// The slots of one context.
#[derive(Debug)]
pub(crate) struct DeviceSlots {
    pub(crate) env: u64,
    pub(crate) stream: Stream,
    pub(crate) readers: Readers,
    pub(crate) halves: Halves,
}

impl DeviceSlots {
    /// Those behind an environment block: nothing is there yet.
    pub(crate) fn new(env: u64, stream: Stream) -> DeviceSlots {
        DeviceSlots {
            env,
            stream,
            readers: Readers::new(env + slots::AT, stream),
            halves: Halves::default(),
        }
    }

    pub(crate) fn half(&self, half: usize) -> u64 {
        self.env + slots::AT + slots::HALVES + half as u64 * slots::HALF
    }

    /// These programs are in one of the halves.
    pub(crate) fn has(&self, filling: &Filling) -> bool {
        self.halves.with(filling.id).is_some()
    }

    /// The gate must be written before programs come: what it says on the device is not known.
    pub(crate) fn is_unsure(&self) -> bool {
        self.halves.unsure
    }

    /// Brings programs into the half that is not in force, once all have left it.
    pub(crate) fn fill(
        &mut self,
        driver: &Driver,
        filling: &Filling,
        maps: &[u64],
        limit: Duration,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), Unwritten> {
        if self.has(filling) {
            return Ok(());
        }
        let Some(free) = self.halves.free() else {
            return Err(Unwritten::Busy);
        };
        let stay = warpbpf_faults::strikes("session/slot-readers");
        if stay || !self.readers.drain(driver, limit, goes_on)? {
            return Err(Unwritten::Busy);
        }
        let at = self.half(free);
        let Some(bytes) = filling.encode(at, self.env, maps) else {
            return Err(Unwritten::Missing);
        };
        self.halves.held[free] = 0;
        driver.write(at, &bytes, self.stream)?;
        self.halves.held[free] = filling.id;
        Ok(())
    }

    /// Has `write` tell the device the bits of slots that are open, and the half with these
    /// programs: none where they are not there.
    pub(crate) fn switch(
        &mut self,
        filling: Option<&Filling>,
        write: impl FnOnce(u64, u64) -> Result<(), DriverError>,
    ) -> Result<(), DriverError> {
        let there = filling.and_then(|filling| Some((filling, self.halves.with(filling.id)?)));
        let written = match there {
            Some((filling, half)) => write(filling.open(), self.half(half)),
            None => write(0, 0),
        };
        self.halves
            .told(there.map(|(_, half)| half), written.is_ok());
        written
    }
}

/// Why kernels that run are not told.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unwritten {
    /// A copy.
    #[error("{0}")]
    Driver(#[from] DriverError),
    /// Of the slots' halves one is in force and the other one is not left yet.
    #[error(
        "kernels still run what was in slots before the programs that are there now: try again"
    )]
    Busy,
    /// There is no such map in this context.
    #[error("a program names a map that there is not; this is a bug in warpbpf")]
    Missing,
}

#[cfg(test)]
mod tests {
    use super::Halves;

    /// Programs come into the free half, and the gate is written so.
    fn put(halves: &mut Halves, id: u64, written: bool) -> Option<usize> {
        let half = match halves.with(id) {
            Some(half) => half,
            None => {
                let free = halves.free()?;
                halves.held[free] = id;
                free
            }
        };
        halves.told(Some(half), written);
        Some(half)
    }

    #[test]
    fn a_half_that_the_gate_may_name_is_not_written() {
        let mut halves = Halves::default();
        assert_eq!(put(&mut halves, 1, true), Some(1));
        assert_eq!(put(&mut halves, 2, false), Some(0));
        // Copies of the gate may name the first one, the second one, or some each.
        assert_eq!((halves.current, halves.held), (1, [2, 1]));
        assert_eq!(put(&mut halves, 3, true), None);
        assert_eq!(halves.held, [2, 1]);
        // The gate is written again: the second one is in force.
        assert_eq!(put(&mut halves, 2, true), Some(0));
        assert_eq!(put(&mut halves, 3, true), Some(1));
        assert_eq!(halves.held, [2, 3]);
    }

    #[test]
    fn a_gate_with_closed_slots_leaves_the_other_half_free() {
        let mut halves = Halves::default();
        assert_eq!(put(&mut halves, 1, true), Some(1));
        halves.told(None, false);
        assert_eq!(halves.free(), None);
        halves.told(None, true);
        assert_eq!(halves.free(), Some(0));
        assert_eq!(put(&mut halves, 2, true), Some(0));
    }
}

//! The gate in one context: which programs are closed, and what is in slots.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use warpbpf_abi::layout::gate;
use warpbpf_driver::{Driver, DriverError, Stream};

use crate::plan::session::{Filling, Gates, Session};
use crate::runtime::device_slots::{DeviceSlots, Unwritten};

/// How long a context that came while slots were filled may have readers of what it never had.
pub(crate) const FILL_LIMIT: Duration = Duration::from_secs(1);

/// The gate in one context.
#[derive(Debug)]
pub(crate) struct DeviceGate {
    pub(crate) env: u64,
    /// Its own: that of the maps may be busy with a large one.
    pub(crate) stream: Stream,
    /// Held while it is written, so that what is written last was read last.
    pub(crate) writing: Mutex<Option<DeviceSlots>>,
}

impl DeviceGate {
    /// That behind an environment block, where all is open until it is written.
    pub(crate) fn new(env: u64, stream: Stream, slots: bool) -> DeviceGate {
        let slots = slots.then(|| DeviceSlots::new(env, stream));
        DeviceGate {
            env,
            stream,
            writing: Mutex::new(slots),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<DeviceSlots>> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `maps` gives the addresses of a session's maps.
    pub(crate) fn write(
        &self,
        driver: &Driver,
        gates: &Gates,
        maps: impl Fn(&Session) -> Result<Vec<u64>, DriverError>,
    ) -> Result<(), Unwritten> {
        let mut writing = self.lock();
        let (word, filling) = gates.wanted();
        if let (Some(slots), Some(filling)) = (writing.as_mut(), &filling) {
            // It is there already, but in a context that came since. Only then are maps asked for:
            // who makes some may wait for kernels.
            if !slots.has(filling) {
                let maps = maps(filling.base())?;
                self.fill(driver, gates, slots, (filling, &maps), FILL_LIMIT, &|| true)?;
            }
        }
        Ok(self.tell(driver, word, writing.as_mut(), filling.as_deref())?)
    }

    /// Brings programs into the half that is not in force.
    pub(crate) fn fill(
        &self,
        driver: &Driver,
        gates: &Gates,
        slots: &mut DeviceSlots,
        (filling, maps): (&Filling, &[u64]),
        limit: Duration,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), Unwritten> {
        if slots.is_unsure() && !slots.has(filling) {
            // Kernels may enter either half, until all copies say again what is in force.
            let (word, now) = gates.wanted();
            self.tell(driver, word, Some(&mut *slots), now.as_deref())?;
        }
        slots.fill(driver, filling, maps, limit, goes_on)
    }

    /// Writes all copies. What is in slots is in force where it has been brought, else they are
    /// closed.
    pub(crate) fn tell(
        &self,
        driver: &Driver,
        word: u64,
        slots: Option<&mut DeviceSlots>,
        filling: Option<&Filling>,
    ) -> Result<(), DriverError> {
        let write = |open: u64, half: u64| {
            let mut bytes = vec![0; gate::SIZE as usize];
            for copy in bytes.chunks_exact_mut(gate::STRIDE as usize) {
                for (at, word) in [(0, word), (gate::OPEN, open), (gate::HALF, half)] {
                    copy[at as usize..][..8].copy_from_slice(&word.to_le_bytes());
                }
            }
            driver.write(self.env + gate::COPIES_AT, &bytes, self.stream)
        };
        match slots {
            Some(slots) => slots.switch(filling, write),
            None => write(0, 0),
        }
    }
}

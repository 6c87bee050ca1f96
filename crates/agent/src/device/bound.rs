//! `--max-device-memory`: what a session may take of each device's memory, for maps, rings and
//! launch records.
//!
//! What it takes is known before anything is asked for, so that a session which does not fit is
//! refused as a whole, with the names of what is large. All contexts of a device share its bound.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use warpbpf_driver::Driver;
use warpbpf_session::Session;

/// Names that a refusal tells.
const NAMED: usize = 4;

/// A session needs more of a device's memory than it may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OverBound {
    device: i32,
    most: u64,
    others: u64,
    bytes: u64,
    /// What is largest of it.
    largest: Vec<(String, u64)>,
}

impl fmt::Display for OverBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, device, most) = (self.bytes, self.device, self.most);
        write!(
            f,
            "the programs need {bytes} bytes of device {device}'s memory, and `--max-device-memory` allows {most}"
        )?;
        if self.others > 0 {
            write!(f, ", of which other contexts have {}", self.others)?;
        }
        let named = self.largest.iter();
        let named: Vec<String> = named
            .map(|(name, bytes)| format!("{name} {bytes}"))
            .collect();
        write!(
            f,
            ": {}; make maps smaller (`max_entries`) or put them on the host (`--map-memory MAP=host`)",
            named.join(", ")
        )
    }
}

impl std::error::Error for OverBound {}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct MemoryBound {
    /// 0 for none.
    most: AtomicU64,
    /// By context: the device and what was taken there.
    taken: Mutex<HashMap<usize, (i32, u64)>>,
}

impl MemoryBound {
    pub(crate) fn set(&self, most: Option<u64>) {
        self.most.store(most.unwrap_or(0), Ordering::Relaxed);
    }

    /// Notes what a context takes of a device.
    ///
    /// # Errors
    /// It is more than there may be; nothing is noted then.
    fn take(&self, context: usize, device: i32, needs: &[(String, u64)]) -> Result<(), OverBound> {
        let most = self.most.load(Ordering::Relaxed);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let others = taken.iter().filter(|(other, _)| **other != context);
        let others: u64 = others
            .filter(|(_, (there, _))| *there == device)
            .map(|(_, (_, bytes))| bytes)
            .sum();
        let bytes = needs.iter().map(|(_, bytes)| bytes).sum();
        if most != 0 && others.saturating_add(bytes) > most {
            let mut largest = needs.to_vec();
            largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
            largest.truncate(NAMED);
            return Err(OverBound {
                device,
                most,
                others,
                bytes,
                largest,
            });
        }
        taken.insert(context, (device, bytes));
        Ok(())
    }

    /// What a context has taken.
    pub(crate) fn of(&self, context: usize) -> u64 {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.get(&context).map_or(0, |(_, bytes)| *bytes)
    }

    /// A context has ended, or its session never came to stand.
    pub(crate) fn give_back(&self, context: usize) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.remove(&context);
    }

    /// Takes what a session needs of the current context's device.
    ///
    /// # Errors
    /// It does not fit.
    pub(crate) fn take_for(
        &self,
        driver: &Driver,
        context: usize,
        session: &Session,
    ) -> Result<(), OverBound> {
        let device = driver.current_device().unwrap_or(0);
        self.take(context, device, &session.device_memory())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_shared_by_its_contexts() {
        let needs = [("map `a`".to_owned(), 600), ("map `b`".to_owned(), 100)];
        let bound = MemoryBound::default();
        bound.take(16, 0, &needs).unwrap();
        assert_eq!((bound.of(16), bound.of(32)), (700, 0));
        bound.set(Some(1000));
        let refused = bound.take(32, 0, &needs).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the programs need 700 bytes of device 0's memory, and `--max-device-memory` allows 1000, of which other contexts have 700: \
             map `a` 600, map `b` 100; make maps smaller (`max_entries`) or put them on the host (`--map-memory MAP=host`)"
        );
        assert_eq!(bound.of(32), 0);
        // Another device, the same context once more, and the first one's place when it is gone.
        bound.take(32, 1, &needs).unwrap();
        bound.take(16, 0, &needs).unwrap();
        bound.give_back(16);
        bound.take(48, 0, &needs).unwrap();
    }
}

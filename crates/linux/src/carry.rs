//! Values that one side writes, brought to the other: from Linux's programs to those of the GPU,
//! and back.
//!
//! Only one of the two for each map, by what the proof knows of the GPU's programs. Where they only
//! read a map, what Linux's programs write there is the device's too. Where they write to an array
//! or to variables, what they change is added to Linux's words: an addition loses nothing, whoever
//! else counts. A hash that they write to stays on its side, for Linux has no way to add to its
//! values from outside.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use warpbpf_maps::{MapView, Value};

use crate::ledger::Ledger;
use crate::map::{Entries, LinuxMap};

/// How old a value may become on the other side, at least.
const EVERY: Duration = Duration::from_millis(10);
/// Of all time, this part is for carrying at most.
const PART: u32 = 10;
/// How long an application that does not answer is left in peace, at least.
const SILENT: Duration = Duration::from_secs(1);

/// Writes to a device: a value for a key, or nothing for one that is gone.
pub type Write<'w> = dyn FnMut(&[u8], Option<&[u8]>) -> Result<(), Errno> + 'w;
/// Has somebody look at what a device holds.
pub type Look<'l> = dyn FnMut(&mut dyn FnMut(&MapView<'_>)) -> Result<(), Errno> + 'l;

/// When to carry again.
#[derive(Debug, Default)]
pub struct Carrier(Option<Instant>);

impl Carrier {
    /// Carries, if it is time; so do this many in all.
    pub fn round(&mut self, all: u32, carry: impl FnOnce() -> Option<Result<(), Errno>>) {
        if self.0.is_some_and(|next| Instant::now() < next) {
            return;
        }
        let begun = Instant::now();
        let silent = carry() == Some(Err(Errno::IO));
        self.0 = Some(Instant::now() + pause(silent, begun.elapsed(), all));
    }
}

/// What went wrong with one map is tried again as soon as what went well.
fn pause(silent: bool, took: Duration, all: u32) -> Duration {
    let least = if silent { SILENT } else { EVERY };
    least.max(took * PART * all)
}

/// What Linux's map holds, with `bytes` of each value, is what an application begins with; nothing
/// of before counts. Zeros of an array, which are there anyway, are not noted.
///
/// # Errors
/// Linux's.
pub fn adopt(map: &LinuxMap, ledger: &mut Ledger, bytes: usize) -> Result<Entries, Errno> {
    ledger.clear();
    let mut entries = map.entries()?;
    for (key, value) in &mut entries {
        value.resize(bytes, 0);
        let zeros = value.iter().all(|byte| *byte == 0);
        if !(zeros && map.spec().has_indices()) {
            ledger.set_base(key, value);
            ledger.set_given(key, value);
        }
    }
    Ok(entries)
}

/// Brings what Linux's programs have written to the device, by `write`: a value for a key, or
/// nothing for one that is gone.
///
/// # Errors
/// The first of Linux's or of `write`, when all other keys have been brought too; but `EIO`, nobody
/// answers, at once. A key that the device does not have can be gone from there.
pub fn to_device(map: &LinuxMap, ledger: &mut Ledger, write: &mut Write<'_>) -> Result<(), Errno> {
    let keyed = !map.spec().has_indices();
    let mut keys = map.keys()?;
    let mut done = Ok(());
    if keyed {
        let there: BTreeSet<&Vec<u8>> = keys.iter().collect();
        let known = ledger.known().filter(|key| !there.contains(key));
        let missed: Vec<Vec<u8>> = known.cloned().collect();
        // First: a full hash has room for others then.
        for key in missed {
            match map.get(&key) {
                Err(Errno::NOENT) => {}
                // It was only passed over while others came and went.
                _ => {
                    keys.push(key);
                    continue;
                }
            }
            match write(&key, None) {
                Ok(()) | Err(Errno::NOENT) => ledger.forget(&key),
                Err(Errno::IO) => return Err(Errno::IO),
                failed => done = done.and(failed),
            }
        }
    }
    for key in &keys {
        let value = match map.get(key) {
            Ok(value) => value,
            Err(Errno::NOENT) => continue,
            Err(error) => {
                done = done.and(Err(error));
                continue;
            }
        };
        // Zeros are what an array holds at first, but not a hash.
        let known = !keyed || ledger.knows(key);
        if known && ledger.base(key, value.len()) == value {
            continue;
        }
        match write(key, Some(&value)) {
            Ok(()) => {}
            Err(Errno::IO) => return Err(Errno::IO),
            failed => {
                done = done.and(failed);
                continue;
            }
        }
        ledger.set_base(key, &value);
        // A program that comes later may count on from here.
        ledger.set_given(key, &value);
    }
    done
}

/// Adds what the device has changed to the words of an array of Linux's, if its values are mapped.
pub fn to_linux(map: &LinuxMap, ledger: &mut Ledger, device: &MapView<'_>) {
    let Some(memory) = map.memory() else { return };
    let slot = map.spec().slot(1, 1);
    for index in 0..map.spec().max_entries {
        let key = index.to_ne_bytes();
        if let Ok(Some(Value::One(mut value))) = device.lookup(&key) {
            value.resize(slot as usize, 0);
            ledger.add(memory, &key, u64::from(index) * slot, &value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carrying_takes_a_part_of_all_time() {
        let [none, long] = [Duration::ZERO, Duration::from_millis(30)];
        assert_eq!(pause(false, none, 1), EVERY);
        assert_eq!(pause(false, long, 1), long * 10);
        assert_eq!(pause(false, long, 3), long * 30);
        // Who has gone says so at once; who is silent is waited for.
        assert_eq!(pause(true, none, 1), SILENT);
        assert_eq!(pause(true, SILENT * 10, 1), SILENT * 100);
    }
}

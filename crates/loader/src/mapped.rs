//! Maps that the tool has in its address space: rings that it reads by itself, and arrays that it reads and writes.

use std::sync::atomic::Ordering;

use rustix::io::Errno;
use warpbpf_abi::maps::BPF_ANY;
use warpbpf_maps::{MapView, Value};
use warpbpf_wire::OpCode;

use crate::bpf_map::{errno, one};
use crate::contents::Contents;
use crate::kernel::Kernel;
use crate::memory::Memory;

/// Brings a value at `start` together: words that the tool has changed since `shadow` go into `device`, the others come
/// from there. True if the tool has changed one; `shadow` then still has it as it was, until the device has it.
fn merge(memory: &Memory, start: u64, shadow: &mut [u8], device: &mut [u8], frozen: bool) -> bool {
    let mut changed = false;
    let words = shadow.as_chunks_mut::<8>().0.iter_mut();
    for ((word, shadow), device) in (0..).zip(words).zip(device.as_chunks_mut::<8>().0) {
        let place = memory.word(start + 8 * word);
        let tool = place.load(Ordering::Relaxed);
        if tool.to_ne_bytes() != *shadow && !frozen {
            changed = true;
            *device = tool.to_ne_bytes();
            continue;
        }
        let new = u64::from_ne_bytes(*device);
        // What the tool writes at this moment stays, and is found changed in the next round.
        let stored = place.compare_exchange(tool, new, Ordering::Relaxed, Ordering::Relaxed);
        if stored.is_ok() {
            *shadow = *device;
        }
    }
    changed
}

impl Kernel {
    /// What the tool has mapped is now what an application starts with.
    pub(crate) fn note_mapped(&mut self) {
        for at in self.mapped() {
            let map = self.maps.get_mut(at).map(|map| &mut map.contents);
            if let Some(Contents::Mapped(memory, shadow)) = map {
                memory.load(0, shadow);
            }
        }
    }

    fn mapped(&self) -> Vec<usize> {
        (self.maps.iter())
            .filter(|(_, map)| matches!(map.contents, Contents::Mapped(..)))
            .map(|(at, _)| at)
            .collect()
    }

    /// Makes descriptors readable whose rings have something to read, writable those that have room, and the others not.
    pub fn refresh(&self) {
        self.maps.iter().for_each(|(_, map)| map.contents.refresh());
    }

    /// Brings what the tool has mapped and what the device holds together: where the tool has written, its word goes to
    /// the device; all else comes from there.
    pub fn synchronise(&mut self) {
        for at in self.mapped() {
            // A device that does not answer leaves the tool with what it had, and is not asked for each map.
            if self.synchronise_map(at) == Err(Errno::IO) {
                return;
            }
        }
    }

    fn synchronise_map(&mut self, at: usize) -> Result<(), Errno> {
        let spec = self.map(at)?.spec;
        let slot = self.slot(&spec) as usize;
        let (Some(copied), Some((session, number))) = (self.copied(at)?, self.session_of(at))
        else {
            return Ok(());
        };
        let view = MapView::new(&copied.plan, &copied.bytes);
        let view = view.map_err(|error| errno(error.errno()))?;
        let frozen = self.map(at)?.frozen;
        let Contents::Mapped(memory, shadow) = &mut self.map_mut(at)?.contents else {
            return Ok(());
        };
        let mut answers = true;
        for key in 0..spec.max_entries {
            let Ok(Some(Value::One(mut device))) = view.lookup(&key.to_ne_bytes()) else {
                continue;
            };
            device.resize(slot, 0);
            let start = key as usize * slot;
            let shadow = &mut shadow[start..start + slot];
            if !merge(memory, start as u64, shadow, &mut device, frozen) || !answers {
                continue;
            }
            let sent = one(
                &*session,
                number,
                OpCode::Update,
                &key.to_ne_bytes(),
                &device[..spec.value_size as usize],
                BPF_ANY,
            );
            match sent {
                Ok(_) => shadow.copy_from_slice(&device),
                // To ask it for each key would keep the tool from its work.
                Err(Errno::IO) => answers = false,
                // The next round sends the words again.
                Err(_) => {}
            }
        }
        if answers { Ok(()) } else { Err(Errno::IO) }
    }
}

//! Maps that the tool has in its address space: rings that it reads by itself, and arrays that it
//! reads and writes.

use std::sync::atomic::Ordering;

use rustix::io::Errno;
use warpbpf_abi::maps::BPF_ANY;
use warpbpf_linux::ledger::combine;
use warpbpf_maps::{MapView, Value, words};
use warpbpf_wire::OpCode;

use crate::kernel::Kernel;
use crate::memory::Memory;
use crate::objects::contents::Contents;
use crate::objects::session::{errno, one};
use crate::objects::shadow::Shadow;

/// Words of a value that the tool has changed, by number.
type Changed = Vec<(usize, [u8; 8])>;

/// Brings a value at `start` to the tool, but for words that the tool has changed since `known`:
/// these are given back, and `known` still has them as they were, until the others have them.
fn merge(memory: &Memory, start: u64, known: &mut [u8], value: &[u8], frozen: bool) -> Changed {
    let mut changed = Vec::new();
    let words = known.as_chunks_mut::<8>().0.iter_mut();
    for ((word, known), value) in (0..).zip(words).zip(value.as_chunks::<8>().0) {
        let place = memory.word(start + 8 * word as u64);
        let tool = place.load(Ordering::Relaxed);
        if tool.to_ne_bytes() != *known && !frozen {
            changed.push((word, tool.to_ne_bytes()));
            continue;
        }
        let new = u64::from_ne_bytes(*value);
        // What the tool writes at this moment stays, and is found changed in the next round.
        let stored = place.compare_exchange(tool, new, Ordering::Relaxed, Ordering::Relaxed);
        if stored.is_ok() {
            *known = *value;
        }
    }
    changed
}

/// Puts the words into a value.
fn apply(changed: &Changed, value: &mut [u8]) {
    let words = value.as_chunks_mut::<8>().0;
    changed.iter().for_each(|(word, new)| words[*word] = *new);
}

impl Kernel {
    /// What the tool has mapped is now what an application starts with.
    pub(crate) fn note_mapped(&mut self) {
        for at in self.mapped() {
            let map = self.maps.get_mut(at).map(|map| &mut map.contents);
            if let Some(Contents::Mapped(memory, known)) = map {
                memory.load(0, known);
            }
        }
    }

    fn mapped(&self) -> Vec<usize> {
        (self.maps.iter())
            .filter(|(_, map)| matches!(map.contents, Contents::Mapped(..)))
            .map(|(at, _)| at)
            .collect()
    }

    /// Makes descriptors readable whose rings have something to read, writable those that have
    /// room, and the others not.
    pub fn refresh(&self) {
        self.maps.iter().for_each(|(_, map)| map.contents.refresh());
    }

    /// Brings what the tool has mapped and what the device and Linux hold together: where the tool
    /// has written, its word goes to them; all else comes from there.
    pub fn synchronise(&mut self) {
        for at in self.mapped() {
            // A device that does not answer leaves the tool with what it had, and is not asked for
            // each map.
            if self.synchronise_map(at) == Err(Errno::IO) {
                return;
            }
        }
    }

    fn synchronise_map(&mut self, at: usize) -> Result<(), Errno> {
        let spec = self.map(at)?.spec;
        let slot = self.slot(&spec) as usize;
        let (copied, session) = (self.copied(at)?, self.session_of(at));
        let view = copied.as_ref().map(|c| MapView::merged(&c.plan, &c.parts));
        let view = view.transpose().map_err(|error| errno(error.errno()))?;
        let map = self.map_mut(at)?;
        let frozen = map.frozen;
        // What Linux's programs only read is what the tool wrote.
        let mut shadow = map
            .shadow
            .as_mut()
            .filter(|shadow| shadow.memory().is_some());
        let Contents::Mapped(memory, known) = &mut map.contents else {
            return Ok(());
        };
        let device = view.zip(session);
        if device.is_none() && shadow.is_none() {
            return Ok(());
        }
        let mut answers = true;
        for key in 0..spec.max_entries {
            let start = key as usize * slot;
            let key = key.to_ne_bytes();
            let mut value = match (&device, &shadow) {
                (Some((view, _)), _) => match view.lookup(&key) {
                    Ok(Some(Value::One(value))) => value,
                    _ => continue,
                },
                (None, Some(shadow)) => shadow.ledger.base(&key, slot),
                (None, None) => continue,
            };
            value.resize(slot, 0);
            let mut both = value.clone();
            if let Some((shadow, linux)) = shadow.as_ref().and_then(|t| Some((t, t.memory()?))) {
                let linux = linux.copy(start as u64, slot as u64);
                combine(&mut both, &linux, &shadow.ledger.base(&key, slot));
            }
            let known = &mut known[start..start + slot];
            let changed = merge(memory, start as u64, known, &both, frozen);
            if changed.is_empty() || !answers {
                continue;
            }
            if let Some(shadow) = &mut shadow {
                let Shadow { map, ledger } = shadow;
                if let Some(memory) = map.memory() {
                    ledger.write(memory, &key, (start as u64, slot), &changed);
                }
            }
            apply(&changed, &mut value);
            let sent = match &device {
                Some((_, (session, number))) => one(
                    &**session,
                    *number,
                    OpCode::Words,
                    &key,
                    &words::pack(
                        &value[..spec.value_size as usize],
                        changed.iter().map(|(word, _)| *word),
                    ),
                    BPF_ANY,
                )
                .map(|_| ()),
                None => Ok(()),
            };
            match sent {
                Ok(()) => {
                    apply(&changed, known);
                    if let Some(shadow) = &mut shadow {
                        shadow.ledger.give(&key, slot, &changed);
                    }
                }
                // To ask it for each key would keep the tool from its work.
                Err(Errno::IO) => answers = false,
                // The next round sends the words again.
                Err(_) => {}
            }
        }
        if answers { Ok(()) } else { Err(Errno::IO) }
    }
}

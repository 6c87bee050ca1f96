//! Maps that the tool has in its address space: rings that it reads by itself, and arrays that it reads and writes.

use rustix::io::Errno;
use warpbpf_abi::maps::BPF_ANY;
use warpbpf_maps::{MapView, Value};
use warpbpf_wire::OpCode;

use crate::bpf_map::{errno, one};
use crate::contents::Contents;
use crate::kernel::Kernel;

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

    /// Makes descriptors readable whose rings have something to read, and the others not.
    pub fn refresh(&self) {
        self.maps.iter().for_each(|(_, map)| map.contents.refresh());
    }

    /// Brings what the tool has mapped and what the device holds together: where the tool has written, its word goes to
    /// the device; all else comes from there.
    pub fn synchronise(&mut self) {
        for at in self.mapped() {
            // A device that does not answer leaves the tool with what it had.
            let _ = self.synchronise_map(at);
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
        for key in 0..spec.max_entries {
            let Ok(Some(Value::One(mut device))) = view.lookup(&key.to_ne_bytes()) else {
                continue;
            };
            let start = key as usize * slot;
            device.resize(slot, 0);
            let tool = memory.copy(start as u64, slot as u64);
            let mut changed = false;
            for word in (0..slot).step_by(8) {
                let (range, here) = (word..word + 8, start + word..start + word + 8);
                if tool[range.clone()] != shadow[here.clone()] && !frozen {
                    changed = true;
                    device[range.clone()].copy_from_slice(&tool[range]);
                } else if tool[range.clone()] != device[range.clone()] {
                    memory.store(here.start as u64, &device[range]);
                }
            }
            shadow[start..start + slot].copy_from_slice(&device);
            if changed {
                device.truncate(spec.value_size as usize);
                one(
                    &*session,
                    number,
                    OpCode::Update,
                    &key.to_ne_bytes(),
                    &device,
                    BPF_ANY,
                )?;
            }
        }
        Ok(())
    }
}

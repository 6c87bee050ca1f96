//! Values that one side writes, brought to the other: from Linux's programs to those of the GPU, and back.
//!
//! Only one of the two for each map, by what the proof knows of the GPU's programs. Where they only read a map, what Linux's
//! programs write there is the device's too. Where they write to an array or to variables, what they change is added to Linux's words:
//! an addition loses nothing, whoever else counts. A hash that they write to stays on its side, for Linux has no way to add to
//! its values from outside.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use warpbpf_abi::maps::BPF_ANY;
use warpbpf_maps::{MapView, Value};
use warpbpf_wire::OpCode;

use crate::bpf_map::{errno, one};
use crate::contents::Contents;
use crate::gather::Programs;
use crate::kernel::Kernel;
use crate::uapi::Command;

/// How old a value may become on the other side, at least.
const EVERY: Duration = Duration::from_millis(10);
/// Of all time, this part is for carrying at most.
const PART: u32 = 10;
/// How long an application that does not answer is left in peace.
const SILENT: Duration = Duration::from_secs(1);

/// When to carry again.
#[derive(Debug, Default)]
pub struct Carrier(Option<Instant>);

impl Carrier {
    /// Carries, if it is time.
    pub fn round(&mut self, kernel: impl FnOnce() -> Option<Result<(), Errno>>) {
        if self.0.is_some_and(|next| Instant::now() < next) {
            return;
        }
        let begun = Instant::now();
        let pause = match kernel() {
            Some(Err(Errno::IO)) => SILENT,
            // What went wrong with one map is tried again.
            _ => EVERY.max(begun.elapsed() * PART),
        };
        self.0 = Some(Instant::now() + pause);
    }
}

impl Kernel {
    /// Notes which maps these programs may write to.
    pub(crate) fn note_written(&mut self, programs: &Programs) {
        self.written = self.written_by_all(programs);
    }

    /// The same of what is attached now, where an application runs: what its programs wrote to before was carried to Linux, and still is.
    pub(crate) fn note_more_written(&mut self) {
        if self.maps.iter().any(|(_, map)| map.twin.is_some()) {
            let now = self.written_by_all(&self.attached());
            self.written.extend(now);
        }
    }

    fn written_by_all(&self, programs: &Programs) -> BTreeSet<usize> {
        let mut written = BTreeSet::new();
        for (at, section) in programs {
            match self.written_by(*at, section) {
                Some(maps) => written.extend(maps),
                // Nothing is proved of programs on the CPU.
                None => written.extend(self.progs.get(*at).into_iter().flat_map(|p| p.all_maps())),
            }
        }
        // A proof does not say which of the maps in a map it was.
        let held = self.maps.iter().flat_map(|(_, map)| map.held());
        written.extend(held);
        written
    }

    fn written_by(&self, at: usize, section: &str) -> Option<BTreeSet<usize>> {
        let gathered = self.gather(&[(at, section.to_owned())]).ok()?;
        let object = warpbpf_object::load(&gathered.object).ok()?;
        let proved = warpbpf_session::plan::prove(object, &self.config.options);
        let (programs, _) = proved.ok()?;
        let program = &programs.first()?.verified;
        let maps = program.facts().written_maps(&program.program().code);
        let place = |(place, number): (&usize, &u32)| maps.contains(number).then_some(*place);
        Some(gathered.numbers.iter().filter_map(place).collect())
    }

    /// Brings over what has changed since the last time; `None` if nothing is shared.
    ///
    /// # Errors
    /// The first map's; `EIO` if the application does not answer.
    pub fn carry(&mut self) -> Option<Result<(), Errno>> {
        self.linux.as_ref()?;
        let shared: Vec<usize> = (self.maps.iter())
            .filter(|(_, map)| map.twin.is_some() && !map.frozen && !map.spec.is_percpu())
            .map(|(at, _)| at)
            .filter(|at| self.session_of(*at).is_some())
            .collect();
        let mut done = Ok(());
        for at in shared {
            let carried = if self.written.contains(&at) {
                self.carry_to_linux(at)
            } else {
                self.carry_to_device(at)
            };
            done = done.and(carried);
            if done == Err(Errno::IO) {
                break;
            }
        }
        Some(done)
    }

    fn carry_to_device(&mut self, at: usize) -> Result<(), Errno> {
        let map = self.map(at)?;
        let keyed = match map.contents {
            Contents::Keyed(_) if map.spec.kind().is_some() => true,
            Contents::Slots(_) | Contents::Mapped(..) => false,
            _ => return Ok(()),
        };
        let (session, number) = self.session_of(at).ok_or(Errno::IO)?;
        let keys = self.keys_of_twin(at)?;
        for key in &keys {
            let value = match self.get(Command::MapLookupElem, at, key) {
                Err(Errno::NOENT) => continue,
                value => value?,
            };
            let twin = self.map_mut(at)?.twin.as_mut().ok_or(Errno::BADF)?;
            // Zeros are what an array holds at first, but not a hash.
            let known = !keyed || twin.knows(key);
            if known && twin.base(key, value.len()) == value {
                continue;
            }
            one(&*session, number, OpCode::Update, key, &value, BPF_ANY)?;
            twin.set_base(key, &value);
            // A program that comes later may count on from here.
            twin.set_given(key, &value);
        }
        if keyed {
            let there: BTreeSet<&Vec<u8>> = keys.iter().collect();
            let twin = self.map(at)?.twin.as_ref().ok_or(Errno::BADF)?;
            let gone: Vec<Vec<u8>> = (twin.known().filter(|key| !there.contains(key)))
                .cloned()
                .collect();
            for key in gone {
                match one(&*session, number, OpCode::Delete, &key, &[], 0) {
                    Ok(_) | Err(Errno::NOENT) => {}
                    Err(error) => return Err(error),
                }
                if let Some(twin) = &mut self.map_mut(at)?.twin {
                    twin.forget(&key);
                }
            }
        }
        Ok(())
    }

    fn carry_to_linux(&mut self, at: usize) -> Result<(), Errno> {
        let map = self.map(at)?;
        let (spec, slot) = (map.spec, self.slot(&map.spec) as usize);
        if map.twin.as_ref().is_none_or(|twin| twin.memory().is_none()) {
            return Ok(());
        }
        let Some(copied) = self.copied(at)? else {
            return Ok(());
        };
        let view = MapView::merged(&copied.plan, &copied.parts);
        let view = view.map_err(|error| errno(error.errno()))?;
        let twin = self.map_mut(at)?.twin.as_mut().ok_or(Errno::BADF)?;
        for index in 0..spec.max_entries {
            let key = index.to_ne_bytes();
            if let Ok(Some(Value::One(mut device))) = view.lookup(&key) {
                device.resize(slot, 0);
                twin.add(&key, u64::from(index) * slot as u64, &device);
            }
        }
        Ok(())
    }
}

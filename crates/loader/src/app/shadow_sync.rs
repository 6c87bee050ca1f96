//! Which maps of the tool are carried from one side to the other, and which way
//! ([`warpbpf_linux::carry`]).

use std::collections::BTreeSet;

use rustix::io::Errno;
use warpbpf_abi::maps::BPF_ANY;
use warpbpf_linux::carry;
use warpbpf_maps::MapView;
use warpbpf_wire::OpCode;

use crate::kernel::Kernel;
use crate::objects::contents::Contents;
use crate::objects::prog::Programs;
use crate::objects::session::{errno, one};

impl Kernel {
    /// Notes which maps these programs may write to.
    pub(crate) fn note_written(&mut self, programs: &Programs) {
        self.written = self.written_by_all(programs);
    }

    /// The same of what is attached now, where an application runs: what its programs wrote to
    /// before was carried to Linux, and still is.
    pub(crate) fn note_more_written(&mut self) {
        if self.maps.iter().any(|(_, map)| map.shadow.is_some()) {
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

    /// What Linux's maps hold is what an application starts with.
    pub(crate) fn adopt_shadows(&mut self) -> Result<(), Errno> {
        // Words that the tool has written since it last waited are in its memory only.
        self.synchronise();
        let all: Vec<usize> = (self.maps.iter())
            .filter(|(_, map)| map.shadow.is_some())
            .map(|(at, _)| at)
            .collect();
        for at in all {
            let map = self.map(at)?;
            let (spec, slot) = (map.spec, self.slot(&map.spec));
            match &map.contents {
                Contents::Slots(_) | Contents::Mapped(..) => {}
                Contents::Keyed(_) => {
                    self.map_mut(at)?.contents = Contents::new(&spec, slot)?;
                }
                Contents::Row(_)
                | Contents::Ring(_)
                | Contents::UserRing(_)
                | Contents::Outputs(_)
                | Contents::Maps(_)
                | Contents::Threads
                | Contents::Records(_) => continue,
            }
            if spec.kind().is_none() {
                continue;
            }
            let bytes = self.user_bytes(&spec);
            let map = self.map_mut(at)?;
            let Some(shadow) = &mut map.shadow else {
                continue;
            };
            for (key, value) in carry::adopt(&shadow.map, &mut shadow.ledger, bytes)? {
                map.contents.set(&spec, slot, &key, &value, BPF_ANY)?;
            }
        }
        Ok(())
    }

    /// Brings over what has changed since the last time; `None` if nothing is shared.
    ///
    /// # Errors
    /// The first map's; `EIO` if the application does not answer.
    pub fn carry(&mut self) -> Option<Result<(), Errno>> {
        self.linux.as_ref()?;
        let shared: Vec<usize> = (self.maps.iter())
            .filter(|(_, map)| map.shadow.is_some() && !map.frozen && !map.spec.is_percpu())
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
        match map.contents {
            Contents::Keyed(_) if map.spec.kind().is_some() => {}
            Contents::Slots(_) | Contents::Mapped(..) => {}
            _ => return Ok(()),
        }
        let (session, number) = self.session_of(at).ok_or(Errno::IO)?;
        let shadow = self.map_mut(at)?.shadow.as_mut().ok_or(Errno::BADF)?;
        carry::to_device(&shadow.map, &mut shadow.ledger, &mut |key, value| {
            let (code, value) = match value {
                Some(value) => (OpCode::Update, value),
                None => (OpCode::Delete, &[][..]),
            };
            one(&*session, number, code, key, value, BPF_ANY).map(|_| ())
        })
    }

    fn carry_to_linux(&mut self, at: usize) -> Result<(), Errno> {
        let shadow = self.map(at)?.shadow.as_ref();
        if shadow.is_none_or(|shadow| shadow.memory().is_none()) {
            return Ok(());
        }
        let Some(copied) = self.copied(at)? else {
            return Ok(());
        };
        let view = MapView::merged(&copied.plan, &copied.parts);
        let view = view.map_err(|error| errno(error.errno()))?;
        let shadow = self.map_mut(at)?.shadow.as_mut().ok_or(Errno::BADF)?;
        carry::to_linux(&shadow.map, &mut shadow.ledger, &view);
        Ok(())
    }
}

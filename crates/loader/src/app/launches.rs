//! A program of the tool's that another process launches as a kernel, with the tool's maps:
//! `warpbpf launch-inside`.
//!
//! That process is an application like any other, but for what it is given: this program alone, at
//! the start of an empty kernel of its name, and the contents of maps that the tool sees by then.
//! So what one leaves is what the next begins with.

use rustix::io::Errno;
use warpbpf_maps::MapView;

use crate::kernel::Kernel;
use crate::objects::contents::Contents;
use crate::objects::prog::Programs;

impl Kernel {
    /// A process wants to launch the program of this name.
    ///
    /// # Errors
    /// `EBUSY` while another process launches one, `ENOENT` without such a program, `EINVAL` if it
    /// is for something else than a GPU, `EACCES` with the proof's text on standard error.
    pub fn launch_wanted(&mut self, pid: u32, name: &str) -> Result<i64, Errno> {
        if self.launches.keys().any(|other| *other != pid) {
            return Err(Errno::BUSY);
        }
        let named = self.progs.iter().filter(|(_, prog)| prog.name == name);
        let (at, prog) = named.last().ok_or(Errno::NOENT)?;
        if !prog.is_for_gpu() || prog.in_linux {
            return Err(Errno::INVAL);
        }
        let section = format!("gpu/entry/{name}");
        if let Err(error) = self.prove(at, Some(&section)) {
            (self.config.tell)(&format!(
                "program `{name}` cannot be launched: {}",
                error.to_string().trim_end()
            ));
            return Err(Errno::ACCESS);
        }
        self.launches.insert(pid, (at, section));
        Ok(0)
    }

    /// What an application is given, and whether it is one that launches.
    pub(crate) fn programs_for(&self, pid: Option<u32>) -> (Programs, bool) {
        match pid.and_then(|pid| self.launches.get(&pid)) {
            Some(launch) => (vec![launch.clone()], true),
            None => (self.attached(), false),
        }
    }

    /// Keys and values that the tool sees in a map, as the tool's own contents have them.
    pub(crate) fn seen(&self, at: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let Some(map) = self.maps.get(at) else {
            return Vec::new();
        };
        let own = || map.contents.entries(&map.spec, self.slot(&map.spec));
        // What Linux holds was made the tool's own just before, and all that is counted from now on
        // is told apart from that.
        if map.shadow.is_some() {
            return own();
        }
        let walked = matches!(
            map.contents,
            Contents::Slots(_) | Contents::Mapped(..) | Contents::Keyed(_)
        );
        let copied = self.copied(at).ok().flatten().filter(|_| walked);
        let Some(copied) = copied else { return own() };
        let Ok(view) = MapView::merged(&copied.plan, &copied.parts) else {
            return own();
        };
        let entries = view.entries().filter_map(|entry| {
            let value = self.user_value(map, &entry.key, entry.value).ok()?;
            let nothing = map.spec.has_indices() && value.iter().all(|byte| *byte == 0);
            (!nothing).then_some((entry.key, value))
        });
        entries.collect()
    }
}

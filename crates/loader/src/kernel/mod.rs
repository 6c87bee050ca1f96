//! What the tool believes to be the kernel: descriptors, and the objects behind them.
//!
//! No call into libc and no global state is here: descriptors come from a [`Descriptors`], what the
//! GPU holds from a [`Session`]. Each command is a method beside those of its kind
//! ([`crate::syscall`]).

pub mod gather;
pub mod program_error;
pub mod prove;
pub mod updates;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::RawFd;
use std::sync::Arc;

use rustix::io::Errno;
use warpbpf_linux::drawn::AllDrawn;
use warpbpf_linux::sys::Linux;

use crate::kernel::updates::Change;
use crate::objects::btf::Btf;
use crate::objects::handle::{Handle, Table};
use crate::objects::link::Link;
use crate::objects::map::Map;
use crate::objects::perf::Perf;
use crate::objects::prog::{Prog, Programs};
use crate::objects::session::{Copied, Session};
use crate::spec::Spec;
use crate::tool::notify::Notify;

/// Where descriptors come from. They must be real, so that the tool can poll, duplicate and close
/// them.
pub trait Descriptors {
    /// A new one, closed on `exec`: another name of that of `notify` if there is one.
    ///
    /// # Errors
    /// What the kernel says.
    fn make(&mut self, notify: Option<&Notify>) -> Result<RawFd, Errno>;
}

/// What a person should know; the tool's own output says the rest.
pub type Tell = fn(&str);

/// How this kernel behaves.
#[derive(Debug, Clone)]
pub struct Config {
    /// CPUs that user space believes in: slots of per-CPU values.
    pub cpus: u32,
    /// Threads of which a lookup in a per-thread array gives the values, for maps that do not say
    /// `map_extra`.
    pub threads: u64,
    /// Options of the verifier and of the session.
    pub options: warpbpf_session::Options,
    /// Whether a name is a function of the running kernel.
    pub is_kernel_symbol: fn(&str) -> bool,
    /// Takes messages.
    pub tell: Tell,
}

/// The objects of a tool.
pub struct Kernel {
    pub(crate) config: Config,
    pub(crate) descriptors: Box<dyn Descriptors + Send>,
    pub(crate) fds: BTreeMap<RawFd, Handle>,
    pub(crate) pins: BTreeMap<String, Handle>,
    /// What is under way from the tool to itself by messages, by the identity of its file, and how
    /// often.
    pub(crate) passed: BTreeMap<u64, (Handle, u32)>,
    pub(crate) maps: Table<Map>,
    pub(crate) progs: Table<Prog>,
    pub(crate) links: Table<Link>,
    pub(crate) btfs: Table<Btf>,
    pub(crate) perfs: Table<Perf>,
    /// Descriptors of other processes that ask here, by the number of their connection; those of
    /// the tool are at 0 while another one asks.
    pub(crate) others: BTreeMap<u64, BTreeMap<RawFd, Handle>>,
    /// The number that another process has for its next descriptor.
    pub(crate) reserved: Option<RawFd>,
    /// The kernel under this process, if it lets us.
    pub(crate) linux: Option<Arc<dyn Linux>>,
    /// Maps that programs of the GPU may write to, as of the last application.
    pub(crate) written: BTreeSet<usize>,
    /// Its ring buffers.
    pub(crate) drawn: AllDrawn,
    /// What the GPU holds, once an application has connected.
    pub(crate) session: Option<Arc<dyn Session>>,
    /// Counts changes of what is attached.
    pub(crate) version: u64,
    /// Programs that processes will launch, by the number of the process, each with its section
    /// there.
    pub(crate) launches: BTreeMap<u32, (usize, String)>,
}

/// While another process asks. The tool has its descriptors back whatever becomes of the question.
struct Asked<'k> {
    kernel: &'k mut Kernel,
    number: u64,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let kernel = &mut *self.kernel;
        kernel.reserved = None;
        let own = kernel.others.remove(&0).unwrap_or_default();
        let theirs = std::mem::replace(&mut kernel.fds, own);
        kernel.others.insert(self.number, theirs);
    }
}

impl Kernel {
    /// A kernel without objects.
    pub fn new(config: Config, descriptors: Box<dyn Descriptors + Send>) -> Kernel {
        Kernel {
            config,
            descriptors,
            fds: BTreeMap::new(),
            pins: BTreeMap::new(),
            passed: BTreeMap::new(),
            maps: Table::default(),
            progs: Table::default(),
            links: Table::default(),
            btfs: Table::default(),
            perfs: Table::default(),
            others: BTreeMap::new(),
            reserved: None,
            linux: None,
            written: BTreeSet::new(),
            drawn: AllDrawn::default(),
            session: None,
            version: 0,
            launches: BTreeMap::new(),
        }
    }

    /// A new descriptor, of an object or of none.
    pub(crate) fn open(&mut self, handle: Option<Handle>) -> Result<i64, Errno> {
        let notify = match handle {
            Some(Handle::Map(at)) => self.maps.get(at).and_then(|map| map.contents.notify()),
            Some(Handle::Perf(at)) => self.perfs.get(at).and_then(Perf::notify),
            _ => None,
        };
        let fd = match (self.reserved, handle) {
            (Some(fd), _) => fd,
            // One that is of Linux itself.
            (None, Some(handle @ Handle::Prog(at))) if self.is_in_linux(at) => {
                let open = self.fds.iter().find(|(_, of)| **of == handle);
                let (open, _) = open.ok_or(Errno::NOENT)?;
                self.linux
                    .as_deref()
                    .ok_or(Errno::NOENT)?
                    .duplicate(*open)?
            }
            (None, _) => self.descriptors.make(notify)?,
        };
        if let Some(handle) = handle {
            self.fds.insert(fd, handle);
        }
        Ok(i64::from(fd))
    }

    /// What a descriptor is of.
    pub fn handle(&self, fd: RawFd) -> Option<Handle> {
        self.fds.get(&fd).copied()
    }

    pub(crate) fn map_at(&self, fd: RawFd) -> Result<usize, Errno> {
        match self.handle(fd) {
            Some(Handle::Map(at)) => Ok(at),
            Some(_) => Err(Errno::INVAL),
            None => Err(Errno::BADF),
        }
    }

    pub(crate) fn prog_at(&self, fd: RawFd) -> Result<usize, Errno> {
        match self.handle(fd) {
            Some(Handle::Prog(at)) => Ok(at),
            Some(_) => Err(Errno::INVAL),
            None => Err(Errno::BADF),
        }
    }

    pub(crate) fn map(&self, at: usize) -> Result<&Map, Errno> {
        self.maps.get(at).ok_or(Errno::BADF)
    }

    pub(crate) fn map_mut(&mut self, at: usize) -> Result<&mut Map, Errno> {
        self.maps.get_mut(at).ok_or(Errno::BADF)
    }

    pub(crate) fn user_bytes(&self, spec: &Spec) -> usize {
        spec.user_bytes(self.config.cpus, self.config.threads) as usize
    }

    pub(crate) fn slot(&self, spec: &Spec) -> u64 {
        spec.slot(self.config.cpus, self.config.threads)
    }

    /// The session that holds a map, and its number there.
    pub(crate) fn session_of(&self, at: usize) -> Option<(Arc<dyn Session>, u32)> {
        let session = self.session.clone()?;
        let number = session.number(at)?;
        Some((session, number))
    }

    pub(crate) fn copied(&self, at: usize) -> Result<Option<Copied>, Errno> {
        match self.session_of(at) {
            Some((session, number)) => session.copied(number),
            None => Ok(None),
        }
    }

    pub(crate) fn btf_at(&self, fd: i32) -> Result<usize, Errno> {
        match self.handle(fd) {
            Some(Handle::Btf(at)) => Ok(at),
            Some(_) => Err(Errno::INVAL),
            None => Err(Errno::BADF),
        }
    }

    /// Linux, if it lets us and the one who asks is the tool.
    pub(crate) fn linux(&self) -> Option<&dyn Linux> {
        self.linux.as_deref().filter(|_| self.reserved.is_none())
    }

    pub(crate) fn is_in_linux(&self, prog: usize) -> bool {
        self.progs.get(prog).is_some_and(|prog| prog.in_linux)
    }

    /// Some program that is not Linux's names the map.
    pub(crate) fn is_used_here(&self, map: usize) -> bool {
        let mut here = self.progs.iter().filter(|(_, prog)| !prog.in_linux);
        here.any(|(_, prog)| prog.all_maps().any(|at| at == map))
    }

    /// Something else is attached now.
    pub(crate) fn changed(&mut self, change: Change) {
        self.version += 1;
        updates::note(change);
    }

    /// Programs that are to run on the GPU now, each with its section, in the order of their links.
    pub fn attached(&self) -> Programs {
        let mut attached = Programs::new();
        for (_, link) in self.links.iter() {
            let Some(section) = link.active() else {
                continue;
            };
            let one = (link.prog, section.to_owned());
            if !attached.contains(&one) {
                attached.push(one);
            }
        }
        attached
    }

    /// What another process asks, over its connection `number`, with `reserved` for a descriptor of
    /// its own.
    pub fn asked_by<T>(
        &mut self,
        number: u64,
        reserved: RawFd,
        question: impl FnOnce(&mut Kernel) -> T,
    ) -> T {
        let theirs = self.others.remove(&number).unwrap_or_default();
        let own = std::mem::replace(&mut self.fds, theirs);
        self.others.insert(0, own);
        self.reserved = Some(reserved);
        let asked = Asked {
            kernel: self,
            number,
        };
        question(&mut *asked.kernel)
    }

    /// Another process is gone.
    pub fn gone(&mut self, number: u64) {
        self.others.remove(&number);
        self.collect();
    }

    /// The tool has closed a descriptor, or put another file behind it. What nobody holds any more
    /// is gone.
    pub fn closed(&mut self, fd: RawFd) {
        if self.fds.remove(&fd).is_some() {
            self.collect();
        }
    }

    /// The tool has duplicated a descriptor.
    pub fn duplicated(&mut self, from: RawFd, to: RawFd) {
        if from == to {
            return;
        }
        self.closed(to);
        if let Some(handle) = self.handle(from) {
            self.fds.insert(to, handle);
        }
    }

    /// The tool has sent a descriptor to itself, and may close its own before it gets that.
    pub fn send(&mut self, identity: u64, handle: Handle) {
        self.passed.entry(identity).or_insert((handle, 0)).1 += 1;
    }

    /// It has come, as this number. False if it was not sent.
    pub fn receive(&mut self, identity: u64, fd: RawFd) -> bool {
        let Some((handle, left)) = self.passed.get_mut(&identity) else {
            return false;
        };
        let handle = *handle;
        *left -= 1;
        let over = *left == 0;
        self.fds.insert(fd, handle);
        if over {
            self.passed.remove(&identity);
        }
        self.collect();
        true
    }

    /// Drops what is neither open nor pinned nor used by what is.
    pub(crate) fn collect(&mut self) {
        let held: Vec<Handle> = self
            .fds
            .values()
            .chain(self.others.values().flat_map(BTreeMap::values))
            .chain(self.pins.values())
            .chain(self.passed.values().map(|(handle, _)| handle))
            .copied()
            .collect();
        let holds = |handle: Handle| held.contains(&handle);
        self.perfs.retain(|at| holds(Handle::Perf(at)));
        let perfs: Vec<usize> = self.perfs.iter().map(|(at, _)| at).collect();
        let links = self.links.iter().count();
        // A link of the old kind lives as long as its event, one of the new kind as long as it is
        // open.
        let alive: Vec<usize> = (self.links.iter())
            .filter(|(at, link)| match link.event {
                Some(event) => perfs.contains(&event),
                None => holds(Handle::Link(*at)),
            })
            .map(|(at, _)| at)
            .collect();
        self.links.retain(|at| alive.contains(&at));
        if self.links.iter().count() != links {
            self.changed(Change::Ended);
        }
        let mut used: Vec<Handle> = Vec::new();
        used.extend(self.links.iter().map(|(_, link)| Handle::Prog(link.prog)));
        self.progs
            .retain(|at| holds(Handle::Prog(at)) || used.contains(&Handle::Prog(at)));
        for (_, prog) in self.progs.iter() {
            used.extend(prog.all_maps().map(Handle::Map));
            used.extend(prog.btf.map(Handle::Btf));
        }
        // Maps hold the maps in them, which hold none.
        for _ in 0..2 {
            for (at, map) in self.maps.iter() {
                if holds(Handle::Map(at)) || used.contains(&Handle::Map(at)) {
                    used.extend(map.held().map(Handle::Map));
                    used.extend(map.btf.map(Handle::Btf));
                }
            }
        }
        self.maps
            .retain(|at| holds(Handle::Map(at)) || used.contains(&Handle::Map(at)));
        self.btfs
            .retain(|at| holds(Handle::Btf(at)) || used.contains(&Handle::Btf(at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Tool;
    use crate::uapi::{Command, attr};

    #[test]
    fn other_processes_have_descriptors_of_their_own() {
        let mut tool = Tool::new();
        let map = tool.map(1, 4, 8, 16);
        let at = tool.attr(&[(attr::id::START, &1u32.to_ne_bytes())]);
        let memory = &tool.memory;
        let get = |kernel: &mut Kernel| kernel.bpf(Command::MapGetFdById as u32, at, 144, memory);
        assert_eq!(tool.kernel.asked_by(7, 3, get), Ok(3));
        assert_eq!(tool.kernel.map_at(3), Err(Errno::BADF));
        assert_eq!(tool.kernel.asked_by(7, 4, |kernel| kernel.map_at(3)), Ok(0));
        let kernel = std::panic::AssertUnwindSafe(&mut tool.kernel);
        let caught = std::panic::catch_unwind(|| {
            let kernel = kernel;
            kernel.0.asked_by(7, 4, |_| panic!("in a question"))
        });
        caught.unwrap_err();
        assert_eq!(
            (tool.kernel.map_at(map), tool.kernel.reserved),
            (Ok(0), None)
        );
        tool.kernel.closed(map);
        assert!(tool.kernel.maps.get(0).is_some());
        tool.kernel.gone(7);
        assert!(tool.kernel.maps.get(0).is_none());
    }

    #[test]
    fn objects_live_as_long_as_somebody_holds_them() {
        let mut tool = Tool::new();
        let map = tool.map(1, 4, 8, 16);
        tool.kernel.duplicated(map, 77);
        tool.kernel.closed(map);
        assert_eq!(tool.kernel.map_at(77), Ok(0));
        assert_eq!(tool.kernel.map_at(map), Err(Errno::BADF));
        assert!(tool.kernel.maps.get(0).is_some());
        // Another file at the number of the last descriptor.
        // Sent to itself twice, closed, and received.
        let handle = tool.kernel.handle(77).unwrap();
        for _ in 0..2 {
            tool.kernel.send(4, handle);
        }
        assert!(!tool.kernel.receive(5, 80));
        assert!(tool.kernel.receive(4, 80));
        for fd in [77, 80] {
            tool.kernel.closed(fd);
        }
        assert!(tool.kernel.handle(80).is_none() && tool.kernel.maps.iter().count() == 1);
        assert!(tool.kernel.receive(4, 77) && !tool.kernel.receive(4, 80));
        tool.kernel.duplicated(5, 77);
        assert!(tool.kernel.maps.get(0).is_none());
    }
}

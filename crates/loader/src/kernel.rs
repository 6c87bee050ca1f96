//! What the tool believes to be the kernel: descriptors, the objects behind them, and the commands
//! of `bpf()`.
//!
//! No call into libc and no global state is here: descriptors come from a [`Descriptors`], memory
//! of the tool from a [`User`], what the GPU holds from a [`Session`]. Each command is a method
//! beside those of its kind.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::RawFd;
use std::sync::Arc;

use rustix::io::Errno;
use warpbpf_linux::drawn::AllDrawn;

use crate::objects::btf::Btf;
use crate::objects::handle::{Handle, Table};
use crate::objects::link::Link;
use crate::objects::map::Map;
use crate::objects::prog::Prog;
use crate::tool::attr::Attr;
use crate::tool::notify::Notify;

use crate::objects::perf::Perf;
use crate::objects::session::Session;
use crate::tool::user::User;
use crate::uapi::Command;
use crate::updates::Change;
use warpbpf_linux::sys::Linux;

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

    /// `bpf(command, attr, size)`.
    ///
    /// # Errors
    /// What Linux says to the same.
    pub fn bpf(
        &mut self,
        number: u32,
        address: u64,
        size: u32,
        user: &dyn User,
    ) -> Result<i64, Errno> {
        let attr = Attr::read(user, address, size)?;
        let command = Command::from_number(number).ok_or(Errno::INVAL)?;
        if let Some(answer) = self.forwarded(command, &attr, user) {
            return answer;
        }
        match command {
            Command::MapCreate => self.map_create(&attr),
            Command::MapLookupElem => self.map_lookup(&attr, user),
            Command::MapUpdateElem => self.map_update(&attr, user),
            Command::MapDeleteElem => self.map_delete(&attr, user),
            Command::MapGetNextKey => self.map_next_key(&attr, user),
            Command::MapLookupAndDeleteElem => self.map_take(&attr, user),
            Command::MapFreeze => self.map_freeze(&attr),
            Command::MapLookupBatch => self.map_lookup_batch(&attr, user, false),
            Command::MapLookupAndDeleteBatch => self.map_lookup_batch(&attr, user, true),
            Command::MapUpdateBatch => self.map_update_batch(&attr, user),
            Command::MapDeleteBatch => self.map_delete_batch(&attr, user),
            Command::ProgLoad => self.prog_load(&attr, user),
            Command::ProgBindMap => self.prog_bind_map(&attr),
            Command::ProgTestRun => self.prog_test_run(&attr, user),
            Command::BtfLoad => self.btf_load(&attr, user),
            Command::ObjPin => self.pin(&attr, user),
            Command::ObjGet => self.get_pinned(&attr, user),
            Command::ObjGetInfoByFd => self.info(&attr, user),
            Command::ProgGetNextId
            | Command::MapGetNextId
            | Command::BtfGetNextId
            | Command::LinkGetNextId => self.next_id(command, &attr, user),
            Command::ProgGetFdById
            | Command::MapGetFdById
            | Command::BtfGetFdById
            | Command::LinkGetFdById => self.fd_by_id(command, &attr),
            Command::LinkCreate => self.link_create(&attr),
            Command::LinkUpdate => self.link_update(&attr),
            Command::LinkDetach => self.link_detach(&attr),
            Command::EnableStats => self.open(None),
            Command::RawTracepointOpen
            | Command::ProgAttach
            | Command::ProgDetach
            | Command::IterCreate => {
                (self.config.tell)(&format!(
                    "the tool asks for {command:?}, which is for programs of Linux, and this one is none, or `bpf()` is not permitted"
                ));
                Err(Errno::OPNOTSUPP)
            }
            // Nothing is attached in those ways.
            Command::ProgQuery | Command::TaskFdQuery => Err(Errno::OPNOTSUPP),
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
pub(crate) mod tests {
    use super::*;
    use crate::tool::user::tests::Memory;
    use crate::uapi::attr;

    /// Numbers that are no descriptors.
    #[derive(Default)]
    pub(crate) struct Numbers(RawFd);

    impl Descriptors for Numbers {
        fn make(&mut self, _: Option<&Notify>) -> Result<RawFd, Errno> {
            self.0 += 1;
            Ok(1000 + self.0)
        }
    }

    /// A tool: a kernel, memory, and calls.
    pub(crate) struct Tool {
        pub(crate) kernel: Kernel,
        pub(crate) memory: Memory,
    }

    impl Tool {
        pub(crate) fn new() -> Tool {
            let config = Config {
                cpus: 4,
                threads: 1024,
                options: warpbpf_session::Options::default(),
                is_kernel_symbol: |name| name == "do_exit",
                tell: |_| {},
            };
            Tool {
                kernel: Kernel::new(config, Box::new(Numbers::default())),
                memory: Memory::default(),
            }
        }

        /// A call with these fields: offset and little-endian bytes.
        pub(crate) fn call(
            &mut self,
            command: Command,
            fields: &[(usize, &[u8])],
        ) -> Result<i64, Errno> {
            let at = self.attr(fields);
            self.kernel.bpf(command as u32, at, 144, &self.memory)
        }

        pub(crate) fn attr(&mut self, fields: &[(usize, &[u8])]) -> u64 {
            let mut bytes = [0u8; 144];
            for (at, value) in fields {
                bytes[*at..at + value.len()].copy_from_slice(value);
            }
            self.memory.put(&bytes)
        }

        pub(crate) fn map(&mut self, kind: u32, key: u32, value: u32, entries: u32) -> RawFd {
            self.call(
                Command::MapCreate,
                &[
                    (attr::map::TYPE, &kind.to_ne_bytes()),
                    (attr::map::KEY_SIZE, &key.to_ne_bytes()),
                    (attr::map::VALUE_SIZE, &value.to_ne_bytes()),
                    (attr::map::MAX_ENTRIES, &entries.to_ne_bytes()),
                    (attr::map::NAME, b"a_map"),
                ],
            )
            .unwrap() as RawFd
        }
    }

    #[test]
    fn what_is_not_known_is_refused_as_linux_does() {
        let mut tool = Tool::new();
        let at = tool.attr(&[]);
        let memory = &tool.memory;
        assert_eq!(tool.kernel.bpf(99, at, 144, memory), Err(Errno::INVAL));
        assert_eq!(tool.kernel.bpf(0, 8, 144, memory), Err(Errno::FAULT));
        assert_eq!(tool.kernel.bpf(0, at, 5000, memory), Err(Errno::TOOBIG));
        let long = memory.put(&[1; 512]);
        assert_eq!(tool.kernel.bpf(0, long, 512, memory), Err(Errno::TOOBIG));
        for command in [Command::RawTracepointOpen, Command::ProgAttach] {
            assert_eq!(tool.call(command, &[]), Err(Errno::OPNOTSUPP));
        }
    }

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

//! `perf_event_open` for what libbpf opens: probes by name, and the rings that
//! `bpf_perf_event_output` writes to.

use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

use crate::kernel::{Handle, Kernel};
use crate::tool::notify::Notify;
use crate::tool::ring::PerfRing;
use crate::tool::user::User;
use crate::uapi::perf;

/// Types of events of probes, as the files of sysfs give them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeTypes {
    /// `/sys/bus/event_source/devices/kprobe/type`.
    pub kprobe: u32,
    /// `/sys/bus/event_source/devices/uprobe/type`.
    pub uprobe: u32,
}

/// An event.
#[derive(Debug, Clone)]
pub enum Perf {
    /// A place for a program.
    Probe(Probe),
    /// A ring of a CPU.
    Output(Arc<Output>),
}

/// Where a program is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// The start or the end of a function, of a kernel of Linux or of a GPU.
    Kernel {
        /// Its name.
        name: String,
        /// At its end.
        ret: bool,
    },
    /// The start or the end of a function of the application.
    User {
        /// Path of the file that it is in.
        path: String,
        /// Offset of its first instruction in the file.
        offset: u64,
        /// At its end.
        ret: bool,
    },
    /// A section name of ours.
    Section(String),
    /// Something on the host, in words.
    Host(String),
}

/// The ring of a CPU, once the tool has mapped it.
#[derive(Debug)]
pub struct Output {
    /// What its descriptors are names of.
    pub notify: Notify,
    /// `None` before it is mapped.
    pub ring: Mutex<Option<Arc<PerfRing>>>,
}

impl Perf {
    /// What its descriptors are names of, if they can become readable.
    pub fn notify(&self) -> Option<&Notify> {
        match self {
            Perf::Probe(_) => None,
            Perf::Output(output) => Some(&output.notify),
        }
    }
}

impl Output {
    /// The ring that the tool maps now, with `pages` of data.
    ///
    /// # Errors
    /// `EINVAL` for a number that Linux refuses, or other than before.
    pub fn map(&self, pages: u64) -> Result<Arc<PerfRing>, Errno> {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ring) = &*ring {
            return if ring.pages() == pages {
                Ok(ring.clone())
            } else {
                Err(Errno::INVAL)
            };
        }
        let new = Arc::new(PerfRing::new(pages)?);
        *ring = Some(new.clone());
        Ok(new)
    }

    /// Readable while there is something to read.
    pub fn refresh(&self) {
        self.notify.clear();
        if self.ring().is_some_and(|ring| ring.unread() > 0) {
            self.notify.signal();
        }
    }
    /// The ring, if it is mapped.
    pub fn ring(&self) -> Option<Arc<PerfRing>> {
        let ring = self.ring.lock();
        ring.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Kernel {
    /// `perf_event_open(attr, …)`; `None` for an event that is not ours to open.
    ///
    /// # Errors
    /// What Linux says to the same.
    pub fn perf_event_open(
        &mut self,
        address: u64,
        types: ProbeTypes,
        is_tracepoint: impl Fn(u64) -> bool,
        user: &dyn User,
    ) -> Result<Option<i64>, Errno> {
        let bytes = user.bytes(address, perf::ATTR_SIZE)?;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(word)
        };
        let (kind, config) = (word(perf::TYPE) as u32, word(perf::CONFIG));
        let (config1, config2) = (word(perf::CONFIG1), word(perf::CONFIG2));
        let probe = if kind == types.kprobe {
            if config1 == 0 || config2 != 0 {
                // A probe by address, or inside a function.
                return Err(Errno::INVAL);
            }
            Probe::Kernel {
                name: user.text(config1, 4096)?,
                ret: config & 1 != 0,
            }
        } else if kind == types.uprobe {
            Probe::User {
                path: user.text(config1, 4096)?,
                offset: config2,
                ret: config & 1 != 0,
            }
        } else if kind == perf::TYPE_TRACEPOINT && is_tracepoint(config) {
            Probe::Host("a tracepoint".to_owned())
        } else if kind == perf::TYPE_SOFTWARE && config == perf::COUNT_SW_BPF_OUTPUT {
            return self.open_output().map(Some);
        } else {
            return Ok(None);
        };
        self.open_probe(probe).map(Some)
    }

    /// A new place for a program.
    ///
    /// # Errors
    /// What the kernel says to a new descriptor.
    pub fn open_probe(&mut self, probe: Probe) -> Result<i64, Errno> {
        let at = self.perfs.add(Perf::Probe(probe));
        self.open(Some(Handle::Perf(at)))
    }

    fn open_output(&mut self) -> Result<i64, Errno> {
        let output = Output {
            notify: Notify::new()?,
            ring: Mutex::default(),
        };
        let at = self.perfs.add(Perf::Output(Arc::new(output)));
        self.open(Some(Handle::Perf(at)))
    }

    /// `ioctl` on an event; `None` if it is not one of ours.
    ///
    /// # Errors
    /// What Linux says to the same.
    pub fn perf_ioctl(
        &mut self,
        fd: i32,
        request: u64,
        argument: u64,
    ) -> Option<Result<i64, Errno>> {
        let Some(Handle::Perf(at)) = self.handle(fd) else {
            return None;
        };
        Some(match request {
            perf::IOC_ENABLE | perf::IOC_DISABLE => {
                self.enable(at, request == perf::IOC_ENABLE);
                Ok(0)
            }
            perf::IOC_SET_BPF => self.prog_at(argument as i32).and_then(|prog| {
                self.attach(prog, at, true)?;
                Ok(0)
            }),
            _ => Err(Errno::NOTTY),
        })
    }
}

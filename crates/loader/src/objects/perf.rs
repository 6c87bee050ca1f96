//! Perf events of the tool: places for probes, and the rings that `bpf_perf_event_output` writes
//! to.

use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

use crate::tool::notify::Notify;
use crate::tool::ring::PerfRing;

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

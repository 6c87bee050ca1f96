//! `perf_event_open` for what libbpf opens: probes by name, and the rings that
//! `bpf_perf_event_output` writes to.

use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use crate::kernel::Kernel;
use crate::objects::handle::Handle;
use crate::objects::perf::{Output, Perf, Probe, ProbeTypes};
use crate::tool::notify::Notify;
use crate::tool::user::User;
use crate::uapi::perf;

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

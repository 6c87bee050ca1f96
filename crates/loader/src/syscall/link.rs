//! Programs at their places: `BPF_LINK_CREATE` and the older `ioctl` of perf events.

use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;
use warpbpf_linux::sys::Place;
use warpbpf_object::{LoadOptions, ObjectErrors};
use warpbpf_session::cpu::{self, CpuError};
use warpbpf_session::section::{SPECIAL, bpftime_kernel};

use crate::kernel::Kernel;
use crate::kernel::program_error::GatherError;
use crate::kernel::updates::Change;
use crate::objects::handle::Handle;
use crate::objects::link::Link;
use crate::objects::perf::{Perf, Probe};
use crate::objects::prog::BPFTIME_PREFIX;
use crate::tool::attr::Attr;
use crate::uapi::{ATTACH_PERF_EVENT, attr};

/// `BPF_F_REPLACE`
const F_REPLACE: u32 = 4;

/// Why a program cannot run on the CPU.
#[derive(Debug, thiserror::Error)]
enum CheckError {
    #[error(transparent)]
    Gather(#[from] GatherError),
    #[error(transparent)]
    Load(#[from] ObjectErrors),
    /// It is not in the object that was made of it.
    #[error("it is gone")]
    Gone {
        /// Its place in the kernel's table.
        program: usize,
    },
    #[error(transparent)]
    Check(#[from] CpuError),
}

impl Kernel {
    pub(crate) fn link_create(&mut self, a: &Attr) -> Result<i64, Errno> {
        let prog = self.prog_at(a.fd(attr::link::PROG_FD))?;
        if a.u32(attr::link::ATTACH_TYPE) != ATTACH_PERF_EVENT {
            (self.config.tell)(&format!(
                "program `{}` cannot be attached: only programs of GPU kernels and probes are served",
                self.progs.get(prog).map_or("", |prog| &prog.name)
            ));
            return Err(Errno::OPNOTSUPP);
        }
        if a.u32(attr::link::FLAGS) != 0 {
            return Err(Errno::INVAL);
        }
        let perf = match self.handle(a.fd(attr::link::TARGET_FD)) {
            Some(Handle::Perf(at)) => at,
            Some(_) => return Err(Errno::INVAL),
            None => return Err(Errno::BADF),
        };
        let link = self.attach(prog, perf, false)?;
        self.open(Some(Handle::Link(link)))
    }

    /// Puts a program at an event.
    pub(crate) fn attach(
        &mut self,
        prog: usize,
        perf: usize,
        by_event: bool,
    ) -> Result<usize, Errno> {
        let probe = match self.perfs.get(perf).ok_or(Errno::BADF)? {
            Perf::Probe(probe) => probe.clone(),
            Perf::Output(_) => return Err(Errno::INVAL),
        };
        let section = self.section_for(prog, &probe)?;
        let in_linux = self.place_in_linux(prog, &probe);
        let link = self.links.add(Link {
            prog,
            perf,
            event: by_event.then_some(perf),
            section,
            enabled: true,
            detached: false,
            in_linux,
        });
        self.changed(Change::Began);
        Ok(link)
    }

    /// A probe of Linux, if that is one and Linux takes it; says why not.
    fn place_in_linux(&mut self, at: usize, probe: &Probe) -> Option<Arc<OwnedFd>> {
        let prog = self.progs.get(at)?;
        let (name, tell) = (prog.name.clone(), self.config.tell);
        let (what, place) = match probe {
            Probe::Host(what) => {
                tell(&format!(
                    "program `{name}` does not run: it is for {what}, and where Linux has those cannot be seen here (mount tracefs at /sys/kernel/tracing, and run the tool as root)"
                ));
                return None;
            }
            Probe::Kernel {
                name: function,
                ret,
            } if self.is_of_linux(at, function) => (
                format!("`{function}` is a function of Linux"),
                Place::Kernel(function.clone(), *ret),
            ),
            Probe::User { path, offset, ret } if self.is_own(path) => (
                "its function is the tool's own".to_owned(),
                Place::Own(path.clone(), *offset, *ret),
            ),
            Probe::Kernel { .. } | Probe::User { .. } | Probe::Section(_) => return None,
        };
        match self.probe_linux(at, &place) {
            Ok(event) => Some(Arc::new(event)),
            Err(why) => {
                tell(&format!("program `{name}` does not run: {what}, and {why}"));
                None
            }
        }
    }

    /// The file is the tool itself, where no agent is but Linux, if it lets us.
    fn is_own(&self, path: &str) -> bool {
        if self.linux().is_none() {
            return false;
        }
        let own = std::fs::canonicalize("/proc/self/exe");
        own.is_ok_and(|own| std::fs::canonicalize(path).is_ok_and(|path| path == own))
    }

    /// A probe by this name is one of Linux.
    fn is_of_linux(&self, prog: usize, function: &str) -> bool {
        let prog = self.progs.get(prog);
        !prog.is_some_and(|prog| prog.name.starts_with(BPFTIME_PREFIX))
            && (self.config.is_kernel_symbol)(function)
    }

    /// What the session calls the place; `None` if the program does not run there.
    fn section_for(&self, at: usize, probe: &Probe) -> Result<Option<String>, Errno> {
        let prog = self.progs.get(at).ok_or(Errno::BADF)?;
        let section = match probe {
            Probe::Section(section) => section.clone(),
            Probe::Host(_) => return Ok(None),
            Probe::User { path, .. } if self.is_own(path) => return Ok(None),
            Probe::User { path, offset, ret } => {
                return Ok(self.section_of_function(at, path, *offset, *ret));
            }
            Probe::Kernel { name, .. } if self.is_of_linux(at, name) => return Ok(None),
            Probe::Kernel { name, ret } => {
                let kernel = match prog.name.starts_with(BPFTIME_PREFIX) {
                    true => bpftime_kernel(name),
                    false => name.into(),
                };
                match (SPECIAL.contains(&name.as_str()), ret) {
                    (true, false) => format!("kprobe/{name}"),
                    (true, true) => format!("kretprobe/{name}"),
                    (false, false) => format!("gpu/entry/{kernel}"),
                    (false, true) => format!("gpu/exit/{kernel}"),
                }
            }
        };
        if let Err(error) = self.prove(at, Some(&section)) {
            (self.config.tell)(&format!(
                "program `{}` cannot be attached as `{section}`: {}",
                prog.name,
                error.to_string().trim_end()
            ));
            return Err(Errno::INVAL);
        }
        Ok(Some(section))
    }

    /// The same of a probe of a function of the application, on the CPU. As in Linux the file is
    /// what counts, and who opens it by which name does not.
    fn section_of_function(&self, at: usize, path: &str, offset: u64, ret: bool) -> Option<String> {
        let prog = self.progs.get(at)?;
        let name = &prog.name;
        let says = |why: &str| (self.config.tell)(&format!("program `{name}` does not run: {why}"));
        let full = match std::fs::canonicalize(path) {
            Ok(full) => full,
            Err(error) => {
                says(&format!("`{path}`: {error}"));
                return None;
            }
        };
        let section = cpu::section(&full.to_string_lossy(), offset, ret);
        match self.check_for_cpu(at, &section) {
            Ok(()) => Some(section),
            Err(error) => {
                says(&error.to_string());
                None
            }
        }
    }

    /// Whether a program can run on the CPU.
    fn check_for_cpu(&self, at: usize, section: &str) -> Result<(), CheckError> {
        let gathered = self.gather(&[(at, section.to_owned())])?;
        let object = warpbpf_object::load_all(&gathered.object, &LoadOptions::default())?;
        let gone = CheckError::Gone { program: at };
        let program = object.programs.first().ok_or(gone)?;
        Ok(cpu::check(program, &object.maps, false)?)
    }

    /// `PERF_EVENT_IOC_ENABLE` and `…_DISABLE`.
    pub(crate) fn enable(&mut self, perf: usize, enabled: bool) {
        let at: Vec<usize> = (self.links.iter())
            .filter(|(_, link)| link.perf == perf && link.enabled != enabled && !link.detached)
            .map(|(at, _)| at)
            .collect();
        for at in at {
            self.enable_link(at, enabled);
        }
    }

    fn enable_link(&mut self, at: usize, enabled: bool) {
        let Some(link) = self.links.get_mut(at) else {
            return;
        };
        link.enabled = enabled;
        if let (Some(event), Some(linux)) = (&link.in_linux, &self.linux) {
            linux.enable(event, enabled);
        }
        self.changed(match enabled {
            true => Change::Began,
            false => Change::Ended,
        });
    }

    fn link_at(&self, fd: i32) -> Result<usize, Errno> {
        match self.handle(fd) {
            Some(Handle::Link(at)) => Ok(at),
            Some(_) => Err(Errno::INVAL),
            None => Err(Errno::BADF),
        }
    }

    pub(crate) fn link_detach(&mut self, a: &Attr) -> Result<i64, Errno> {
        let at = self.link_at(a.fd(0))?;
        let link = self.links.get_mut(at).ok_or(Errno::BADF)?;
        if !std::mem::replace(&mut link.detached, true) {
            self.enable_link(at, false);
        }
        Ok(0)
    }

    /// Another program at the same place.
    pub(crate) fn link_update(&mut self, a: &Attr) -> Result<i64, Errno> {
        let at = self.link_at(a.fd(attr::link_update::LINK_FD))?;
        let prog = self.prog_at(a.fd(attr::link_update::NEW_PROG_FD))?;
        let link = self.links.get(at).ok_or(Errno::BADF)?;
        if link.detached {
            return Err(Errno::NOLINK);
        }
        let (flags, old) = (
            a.u32(attr::link_update::FLAGS),
            a.u32(attr::link_update::OLD_PROG_FD),
        );
        // As Linux: what was there before is asked for with `BPF_F_REPLACE`, and only then.
        let replace = flags & F_REPLACE != 0;
        if flags & !F_REPLACE != 0 || (!replace && old != 0) {
            return Err(Errno::INVAL);
        }
        if replace && self.prog_at(old as RawFd)? != link.prog {
            return Err(Errno::PERM);
        }
        let probe = match self.perfs.get(link.perf) {
            Some(Perf::Probe(probe)) => probe.clone(),
            _ => return Err(Errno::INVAL),
        };
        let section = self.section_for(prog, &probe)?;
        let in_linux = self.place_in_linux(prog, &probe);
        let link = self.links.get_mut(at).ok_or(Errno::BADF)?;
        (link.prog, link.section, link.in_linux) = (prog, section, in_linux);
        self.changed(Change::Began);
        self.collect();
        Ok(0)
    }
}

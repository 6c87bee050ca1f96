//! Programs at their places: `BPF_LINK_CREATE` and the older `ioctl` of perf events.

use rustix::io::Errno;
use warpbpf_session::cpu;

use crate::bpf_prog::BPFTIME_PREFIX;
use crate::kernel::{Attr, Handle, Kernel};
use crate::perf::{Perf, Probe};
use crate::uapi::{ATTACH_PERF_EVENT, attr};

/// Names that mean no kernel, with the form that they ask for.
const SPECIAL: &[&str] = &["__memcapture", "__directly_run"];

/// A program at a place.
#[derive(Debug, Clone)]
pub struct Link {
    /// The program, by place.
    pub prog: usize,
    /// The event, by place.
    pub perf: usize,
    /// Set if the link has no descriptor of its own and lives as long as its event.
    pub event: Option<usize>,
    /// Section that the GPU's session gets it by; `None` if it does not run.
    pub section: Option<String>,
    /// It was not disabled by `ioctl`, nor detached.
    pub enabled: bool,
}

impl Link {
    /// The section, if the program is to run now.
    pub fn active(&self) -> Option<&str> {
        self.section.as_deref().filter(|_| self.enabled)
    }
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
        let link = self.links.add(Link {
            prog,
            perf,
            event: by_event.then_some(perf),
            section,
            enabled: true,
        });
        self.version += 1;
        Ok(link)
    }

    /// What the session calls the place; `None` if the program does not run there.
    fn section_for(&self, at: usize, probe: &Probe) -> Result<Option<String>, Errno> {
        let prog = self.progs.get(at).ok_or(Errno::BADF)?;
        let section = match probe {
            Probe::Section(section) => section.clone(),
            Probe::Host(what) => {
                (self.config.tell)(&format!(
                    "program `{}` does not run: it is for {what}, and only programs of GPU kernels do here",
                    prog.name
                ));
                return Ok(None);
            }
            Probe::User { path, offset, ret } => {
                return Ok(self.section_of_function(at, path, *offset, *ret));
            }
            Probe::Kernel { name, ret } => {
                let cuda = prog.name.starts_with(BPFTIME_PREFIX);
                if !cuda && (self.config.is_kernel_symbol)(name) {
                    (self.config.tell)(&format!(
                        "program `{}` does not run: `{name}` is a function of Linux, and only programs of GPU kernels do here",
                        prog.name
                    ));
                    return Ok(None);
                }
                match (SPECIAL.contains(&name.as_str()), ret) {
                    (true, false) => format!("kprobe/{name}"),
                    (true, true) => format!("kretprobe/{name}"),
                    (false, false) => format!("gpu/entry/{name}"),
                    (false, true) => format!("gpu/exit/{name}"),
                }
            }
        };
        if let Err(text) = self.prove(at, Some(&section)) {
            (self.config.tell)(&format!(
                "program `{}` cannot be attached as `{section}`: {}",
                prog.name,
                text.trim_end()
            ));
            return Err(Errno::INVAL);
        }
        Ok(Some(section))
    }

    /// The same of a probe of a function of the application, on the CPU. As in Linux the file is what counts, and who opens it
    /// by which name does not.
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
        let checked = self.gather(&[(at, section.clone())]).and_then(|gathered| {
            let object = warpbpf_object::load(&gathered.object).map_err(|e| e.to_string())?;
            let program = object.programs.first().ok_or("it is gone")?;
            cpu::check(program, &object.maps, false).map_err(|error| error.to_string())
        });
        match checked {
            Ok(()) => Some(section),
            Err(why) => {
                says(&why);
                None
            }
        }
    }

    /// `PERF_EVENT_IOC_ENABLE` and `…_DISABLE`.
    pub(crate) fn enable(&mut self, perf: usize, enabled: bool) {
        let at: Vec<usize> = (self.links.iter())
            .filter(|(_, link)| link.perf == perf && link.enabled != enabled)
            .map(|(at, _)| at)
            .collect();
        for at in at {
            if let Some(link) = self.links.get_mut(at) {
                link.enabled = enabled;
                self.version += 1;
            }
        }
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
        link.enabled = false;
        self.version += 1;
        Ok(0)
    }

    /// Another program at the same place.
    pub(crate) fn link_update(&mut self, a: &Attr) -> Result<i64, Errno> {
        let at = self.link_at(a.fd(attr::link_update::LINK_FD))?;
        let prog = self.prog_at(a.fd(attr::link_update::NEW_PROG_FD))?;
        let link = self.links.get(at).ok_or(Errno::BADF)?;
        let replace = a.u32(attr::link_update::FLAGS) & 4 != 0;
        if replace && self.prog_at(a.fd(attr::link_update::OLD_PROG_FD))? != link.prog {
            return Err(Errno::PERM);
        }
        let probe = match self.perfs.get(link.perf) {
            Some(Perf::Probe(probe)) => probe.clone(),
            _ => return Err(Errno::INVAL),
        };
        let section = self.section_for(prog, &probe)?;
        let link = self.links.get_mut(at).ok_or(Errno::BADF)?;
        (link.prog, link.section) = (prog, section);
        self.version += 1;
        self.collect();
        Ok(0)
    }

    /// Programs that are to run on the GPU now, each with its section, in the order of their links.
    pub fn attached(&self) -> Vec<(usize, String)> {
        let mut attached: Vec<(usize, String)> = Vec::new();
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
}

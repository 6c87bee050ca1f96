//! A program of an object in Linux: loaded with descriptors in place of its maps, and attached
//! where its section says.

use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::path::Path;

use rustix::io::Errno;
use warpbpf_ebpf::{Slot, encode};
use warpbpf_object::Program;

use crate::error::{LinuxError, PlaceError};
use crate::place::{self, Tracefs};
use crate::section::Attach;
use crate::sys::{Fields, Linux, Place};
use crate::types::{KernelTypes, ObjectTypes, Records, Target};
use crate::uapi::{Command, F_SLEEPABLE, attr, pseudo};

/// Bytes that the verifier may write.
const LOG_BYTES: usize = 4 << 20;
/// Lines of its text that are shown: the last ones say why.
const LOG_LINES: usize = 60;

/// Where maps are.
pub(crate) trait Maps {
    /// The descriptor of a map, by its index in the object.
    fn descriptor(&self, index: u32) -> Option<RawFd>;
}

/// What a program needs besides its code.
pub(crate) struct Needs<'a> {
    pub(crate) linux: &'a dyn Linux,
    pub(crate) license: &'a str,
    /// The object's types.
    pub(crate) types: Option<&'a ObjectTypes>,
    /// The kernel's, or why there are none.
    pub(crate) kernel: Result<&'a KernelTypes, &'a PlaceError>,
    pub(crate) tracefs: &'a Tracefs,
    pub(crate) map: &'a dyn Maps,
}

/// A program that Linux has taken.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) attach: Attach,
    pub(crate) fd: OwnedFd,
}

impl Needs<'_> {
    /// Has Linux prove a program.
    pub(crate) fn load(&self, program: &Program) -> Result<Loaded, LinuxError> {
        let (name, section) = (&program.name, &program.section);
        let attach = match Attach::parse(name, section) {
            Some(attach) => attach?,
            None => return Err(self.fault(program, "it is none of Linux's")),
        };
        let target = self.target(program, &attach)?;
        let code = self.code(program)?;
        let license = [self.license.as_bytes(), &[0]].concat();
        let records = self.types.and_then(|types| types.records(program));
        let ask = |with_types: bool, log: &mut [u8]| {
            let fields = self.fields(&attach, target.as_ref(), name);
            let fields = fields
                .u32(attr::prog::INSN_COUNT, (code.len() / Slot::BYTES) as u32)
                .address(attr::prog::INSNS, &code)
                .address(attr::prog::LICENSE, &license)
                .u32(attr::prog::LOG_LEVEL, u32::from(!log.is_empty()))
                .u32(attr::prog::LOG_SIZE, log.len() as u32)
                .u64(
                    attr::prog::LOG,
                    if log.is_empty() {
                        0
                    } else {
                        log.as_mut_ptr() as u64
                    },
                );
            let fields = match (self.types, &records) {
                (Some(types), Some(records)) if with_types => typed(fields, types, records),
                _ => fields,
            };
            fields.open(self.linux, Command::ProgLoad)
        };
        if let Ok(fd) = ask(true, &mut []) {
            return Ok(Loaded { attach, fd });
        }
        let mut log = vec![0; LOG_BYTES];
        let mut result = ask(true, &mut log);
        // Types that this kernel does not take are not worth the program.
        if result.is_err() && records.is_some() && log[0] == 0 {
            result = ask(false, &mut log);
        }
        let fd = result.map_err(|errno| LinuxError::Rejected {
            program: name.clone(),
            section: section.clone(),
            errno,
            log: shown(&log),
        })?;
        Ok(Loaded { attach, fd })
    }

    fn fields(&self, attach: &Attach, target: Option<&Target>, name: &str) -> Fields {
        let sleepable = matches!(
            attach,
            Attach::Function {
                sleepable: true,
                ..
            }
        );
        let module = target.and_then(|target| target.module.as_ref());
        Fields::new()
            .u32(attr::prog::TYPE, attach.program_type())
            .u32(attr::prog::ATTACH_TYPE, attach.attach_type())
            .u32(attr::prog::FLAGS, if sleepable { F_SLEEPABLE } else { 0 })
            .u32(
                attr::prog::ATTACH_BTF_ID,
                target.map_or(0, |target| target.id),
            )
            .u32(
                attr::prog::ATTACH_BTF_OBJ_FD,
                module.map_or(0, |module| module.as_raw_fd() as u32),
            )
            .name(attr::prog::NAME, name)
    }

    /// What of Linux it is loaded for, if it is for one thing.
    fn target(&self, program: &Program, attach: &Attach) -> Result<Option<Target>, LinuxError> {
        let types = || self.kernel.map_err(|why| self.fault(program, why));
        let found = match attach {
            Attach::TypedTracepoint { name } => types()?.tracepoint(name),
            Attach::Function { module, name, .. } => {
                types()?.function(self.linux, module.as_deref(), name)
            }
            _ => return Ok(None),
        };
        found.map(Some).map_err(|what| self.fault(program, what))
    }

    /// Its instructions, with descriptors for maps.
    fn code(&self, program: &Program) -> Result<Vec<u8>, LinuxError> {
        let code = encode(&program.code);
        let mut code = code.map_err(|error| self.fault(program, error))?;
        let mut at = 0;
        while at < code.len() {
            let source = code[at + 1] >> 4;
            let wide = code[at] == Slot::LDDW;
            if wide && matches!(source, pseudo::MAP_FD | pseudo::MAP_VALUE) {
                let mut index = [0; 4];
                index.copy_from_slice(&code[at + 4..at + 8]);
                let fd = self.map.descriptor(u32::from_le_bytes(index));
                let fd = fd.ok_or_else(|| self.fault(program, "a map of it was not made"))?;
                code[at + 4..at + 8].copy_from_slice(&fd.to_le_bytes());
            }
            at += Slot::BYTES * (1 + usize::from(wide));
        }
        Ok(code)
    }

    fn fault(&self, program: &Program, what: impl ToString) -> LinuxError {
        LinuxError::Place {
            program: program.name.clone(),
            section: program.section.clone(),
            what: what.to_string(),
        }
    }

    /// Has Linux run it from now on, until what comes back is closed.
    pub(crate) fn attach(&self, program: &Program, loaded: &Loaded) -> Result<OwnedFd, LinuxError> {
        let raw = |name: &[u8]| {
            let fields = Fields::new()
                .address(attr::raw_tracepoint::NAME, name)
                .u32(attr::raw_tracepoint::PROG_FD, loaded.fd.as_raw_fd() as u32);
            fields.open(self.linux, Command::RawTracepointOpen)
        };
        let at = |place: Place| self.linux.probe(loaded.fd.as_raw_fd(), &place);
        let fault = |error: PlaceError| self.fault(program, error);
        let no = |what: String| self.fault(program, what);
        let attached = match &loaded.attach {
            Attach::Tracepoint { category, name } => {
                let number = self.tracefs.number(category, name);
                at(Place::Tracepoint(number.map_err(fault)?))
            }
            Attach::RawTracepoint { name } => match raw(&[name.as_bytes(), &[0]].concat()) {
                Err(Errno::NOENT) => {
                    return Err(no(format!("Linux has no tracepoint `{name}`")));
                }
                attached => attached,
            },
            Attach::TypedTracepoint { .. } | Attach::Function { .. } => raw(&[]),
            Attach::Probe { name, at_end } => match at(Place::Kernel(name.clone(), *at_end)) {
                Err(Errno::NOENT) => return Err(no(no_probe(name))),
                attached => attached,
            },
            Attach::User {
                file,
                function,
                offset,
                at_end,
            } => {
                let start = match function {
                    Some(function) => place::offset(Path::new(file), function).map_err(fault)?,
                    None => 0,
                };
                at(Place::File(file.clone(), start + offset, *at_end))
            }
        };
        attached.map_err(|errno| LinuxError::Attach {
            program: program.name.clone(),
            section: program.section.clone(),
            errno,
        })
    }
}

/// `ENOENT` means two things.
fn no_probe(name: &str) -> String {
    let why = match Path::new("/sys/bus/event_source/devices/kprobe").exists() {
        true => format!("Linux has no function `{name}` that can be probed"),
        false => format!(
            "this Linux has no probes of its functions (CONFIG_KPROBE_EVENTS); `fentry/{name}` may do"
        ),
    };
    format!("{why}; for a kernel of the GPU write `gpu/entry/{name}`")
}

fn typed(fields: Fields, types: &ObjectTypes, records: &Records) -> Fields {
    let count = |bytes: &[u8], size: u32| bytes.len() as u32 / size;
    let fields = fields
        .u32(attr::prog::BTF_FD, types.fd() as u32)
        .u32(attr::prog::FUNC_INFO_SIZE, 8)
        .u32(attr::prog::FUNC_INFO_COUNT, count(&records.functions, 8))
        .address(attr::prog::FUNC_INFO, &records.functions);
    if records.lines.is_empty() {
        return fields;
    }
    fields
        .u32(attr::prog::LINE_INFO_SIZE, 16)
        .u32(attr::prog::LINE_INFO_COUNT, count(&records.lines, 16))
        .address(attr::prog::LINE_INFO, &records.lines)
}

/// The end of what the verifier wrote, behind a line of ours; nothing if it wrote nothing.
fn shown(log: &[u8]) -> String {
    let text = log.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.trim_end().lines().collect();
    if lines.is_empty() {
        return String::new();
    }
    let first = lines.len().saturating_sub(LOG_LINES);
    let mut shown = match first {
        0 => String::from("\nits verifier says:"),
        _ => format!("\nits verifier says, after {first} lines more:"),
    };
    for line in &lines[first..] {
        shown.push_str("\n  ");
        shown.push_str(line);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_text_is_shown() {
        assert_eq!(shown(&[0; 8]), "");
        assert_eq!(shown(b"a\nb\n\0rest"), "\nits verifier says:\n  a\n  b");
        let long: String = (0..100).map(|n| format!("{n}\n")).collect();
        let text = shown(long.as_bytes());
        assert!(text.starts_with("\nits verifier says, after 40 lines more:\n  40\n"));
        assert!(text.ends_with("\n  99"));
    }
}

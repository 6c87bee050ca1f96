//! Sections of programs that Linux runs: libbpf's names, and `uprobe.k` for a probe of Linux's
//! where `uprobe` is one in the application.

use crate::uapi::{ATTACH_TRACE_FENTRY, ATTACH_TRACE_FEXIT, ATTACH_TRACE_RAW_TP, prog_type};

/// Functions of programs whose `kprobe/` is one of a GPU's kernel, as bpftime has it.
const OF_A_GPU: &str = "cuda__";

/// Where a program of Linux is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attach {
    /// `tracepoint/CATEGORY/NAME`
    Tracepoint {
        /// As `syscalls`.
        category: String,
        /// As `sys_enter_ioctl`.
        name: String,
    },
    /// `raw_tp/NAME`
    RawTracepoint {
        /// As `sys_enter`.
        name: String,
    },
    /// `tp_btf/NAME`
    TypedTracepoint {
        /// As `sys_enter`.
        name: String,
    },
    /// `fentry/FUNCTION`, `fexit/MODULE:FUNCTION`
    Function {
        /// Module that it is in; the kernel itself if none.
        module: Option<String>,
        /// Its name.
        name: String,
        /// When it returns.
        at_end: bool,
        /// The program may sleep.
        sleepable: bool,
    },
    /// `kprobe/FUNCTION`, `kretprobe/FUNCTION`
    Probe {
        /// Its name.
        name: String,
        /// When it returns.
        at_end: bool,
    },
    /// `uprobe.k/FILE:FUNCTION`, `uretprobe.k/FILE+0xOFFSET`
    User {
        /// Path of the file.
        file: String,
        /// The function, or nothing for an offset in the file.
        function: Option<String>,
        /// Bytes behind the function's start, or in the file.
        offset: u64,
        /// When it returns.
        at_end: bool,
    },
}

/// What is wrong with such a section.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{program}`: section `{section}` names no place in Linux; write `{form}`")]
pub struct SectionError {
    /// The program's function.
    pub program: String,
    /// Its section.
    pub section: String,
    /// What may stand there.
    pub form: &'static str,
}

impl Attach {
    /// Reads a section; `None` if it is not of a program of Linux.
    pub fn parse(program: &str, section: &str) -> Option<Result<Attach, SectionError>> {
        let (head, rest) = section.split_once('/').unwrap_or((section, ""));
        let (kind, sleepable) = match head.strip_suffix(".s") {
            Some(kind @ ("fentry" | "fexit")) => (kind, true),
            _ => (head, false),
        };
        let named = |name: &str| {
            let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
            let begins = name.chars().next().is_some_and(|c| c != '.');
            (begins && name.chars().all(good)).then(|| name.to_owned())
        };
        let (attach, form) = match kind {
            "tracepoint" | "tp" => {
                let parts = rest.split_once('/');
                let parts =
                    parts.and_then(|(category, name)| Some((named(category)?, named(name)?)));
                let attach = parts.map(|(category, name)| Attach::Tracepoint { category, name });
                (attach, "tracepoint/CATEGORY/NAME")
            }
            "raw_tp" | "raw_tracepoint" => {
                let attach = named(rest).map(|name| Attach::RawTracepoint { name });
                (attach, "raw_tp/NAME")
            }
            "tp_btf" => {
                let attach = named(rest).map(|name| Attach::TypedTracepoint { name });
                (attach, "tp_btf/NAME")
            }
            "fentry" | "fexit" => {
                let (module, name) = match rest.split_once(':') {
                    Some((module, name)) => (Some(module), name),
                    None => (None, rest),
                };
                let attach = named(name).map(|name| Attach::Function {
                    module: module.map(str::to_owned),
                    name,
                    at_end: kind == "fexit",
                    sleepable,
                });
                let attach = attach.filter(|_| module.is_none_or(|m| named(m).is_some()));
                (attach, "fentry/FUNCTION or fentry/MODULE:FUNCTION")
            }
            "kprobe" | "kretprobe" if !program.starts_with(OF_A_GPU) => {
                let attach = named(rest).map(|name| Attach::Probe {
                    name,
                    at_end: kind == "kretprobe",
                });
                (attach, "kprobe/FUNCTION")
            }
            "uprobe.k" | "uretprobe.k" => {
                let attach = user(rest, kind == "uretprobe.k");
                (attach, "uprobe.k/FILE:FUNCTION or uprobe.k/FILE+0xOFFSET")
            }
            _ => return None,
        };
        Some(attach.ok_or_else(|| SectionError {
            program: program.to_owned(),
            section: section.to_owned(),
            form,
        }))
    }

    /// The section is of a program of Linux.
    pub fn is_of_linux(program: &str, section: &str) -> bool {
        Attach::parse(program, section).is_some()
    }

    /// `enum bpf_prog_type`
    pub(crate) fn program_type(&self) -> u32 {
        match self {
            Attach::Tracepoint { .. } => prog_type::TRACEPOINT,
            Attach::RawTracepoint { .. } => prog_type::RAW_TRACEPOINT,
            Attach::TypedTracepoint { .. } | Attach::Function { .. } => prog_type::TRACING,
            Attach::Probe { .. } | Attach::User { .. } => prog_type::KPROBE,
        }
    }

    /// `enum bpf_attach_type`, of programs that are loaded for one function.
    pub(crate) fn attach_type(&self) -> u32 {
        match self {
            Attach::TypedTracepoint { .. } => ATTACH_TRACE_RAW_TP,
            Attach::Function { at_end: false, .. } => ATTACH_TRACE_FENTRY,
            Attach::Function { at_end: true, .. } => ATTACH_TRACE_FEXIT,
            Attach::Tracepoint { .. }
            | Attach::RawTracepoint { .. }
            | Attach::Probe { .. }
            | Attach::User { .. } => 0,
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let end = |at_end: &bool| if *at_end { "end" } else { "start" };
        match self {
            Attach::Tracepoint { category, name } => format!("tracepoint {category}:{name}"),
            Attach::RawTracepoint { name } => format!("raw tracepoint {name}"),
            Attach::TypedTracepoint { name } => format!("typed tracepoint {name}"),
            Attach::Function {
                module,
                name,
                at_end,
                ..
            } => {
                let of = module.as_ref().map(|module| format!(" of module {module}"));
                format!("{} of {name}(){}", end(at_end), of.unwrap_or_default())
            }
            Attach::Probe { name, at_end } => format!("probe at the {} of {name}()", end(at_end)),
            Attach::User {
                file,
                function,
                offset,
                at_end,
            } => {
                let place = match (function, offset) {
                    (Some(function), 0) => format!("{function}()"),
                    (Some(function), offset) => format!("{function}()+{offset:#x}"),
                    (None, offset) => format!("{offset:#x}"),
                };
                format!("{} of {place} in {file}", end(at_end))
            }
        }
    }
}

fn user(text: &str, at_end: bool) -> Option<Attach> {
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let (file, function, offset) = match text.rsplit_once(':') {
        Some((file, function)) => match function.rsplit_once('+') {
            Some((function, offset)) => (file, Some(function), number(offset)?),
            None => (file, Some(function), 0),
        },
        None => {
            let (file, offset) = text.rsplit_once('+')?;
            (file, None, number(offset)?)
        }
    };
    let good = !file.is_empty() && function.is_none_or(|function| !function.is_empty());
    good.then(|| Attach::User {
        file: file.to_owned(),
        function: function.map(str::to_owned),
        offset,
        at_end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(section: &str) -> String {
        match Attach::parse("f", section) {
            None => "none".into(),
            Some(Ok(attach)) => attach.text(),
            Some(Err(error)) => error.to_string(),
        }
    }

    #[test]
    fn libbpf_s_sections_are_read() {
        for (section, text) in [
            (
                "tracepoint/syscalls/sys_enter_ioctl",
                "tracepoint syscalls:sys_enter_ioctl",
            ),
            ("tp/sched/sched_switch", "tracepoint sched:sched_switch"),
            ("raw_tp/sys_enter", "raw tracepoint sys_enter"),
            ("tp_btf/sched_switch", "typed tracepoint sched_switch"),
            ("fentry/do_sys_openat2", "start of do_sys_openat2()"),
            ("fexit.s/do_sys_openat2", "end of do_sys_openat2()"),
            (
                "fentry/nvidia_uvm:uvm_ioctl",
                "start of uvm_ioctl() of module nvidia_uvm",
            ),
            (
                "kprobe/do_sys_openat2",
                "probe at the start of do_sys_openat2()",
            ),
            (
                "kretprobe/do_sys_openat2",
                "probe at the end of do_sys_openat2()",
            ),
            (
                "uprobe.k//lib/libc.so.6:malloc",
                "start of malloc() in /lib/libc.so.6",
            ),
            ("uretprobe.k/./a:b::c+0x10", "end of c()+0x10 in ./a:b:"),
            ("uprobe.k//bin/app+0x40", "start of 0x40 in /bin/app"),
            ("uprobe//bin/app+0x40", "none"),
            ("gpu/entry/*", "none"),
            ("cuda/cuMemAlloc", "none"),
            ("iter/task", "none"),
        ] {
            assert_eq!(read(section), text, "{section}");
        }
        assert_eq!(Attach::parse("cuda__f", "kprobe/_Z1kv"), None);
    }

    #[test]
    fn what_names_no_place_is_refused_with_the_form() {
        for (section, form) in [
            ("tracepoint/sys_enter_ioctl", "tracepoint/CATEGORY/NAME"),
            ("tp/a/", "tracepoint/CATEGORY/NAME"),
            ("tp/../../etc", "tracepoint/CATEGORY/NAME"),
            ("raw_tp", "raw_tp/NAME"),
            ("fentry/a b", "fentry/FUNCTION or fentry/MODULE:FUNCTION"),
            ("fentry/../x:f", "fentry/FUNCTION or fentry/MODULE:FUNCTION"),
            ("kprobe/", "kprobe/FUNCTION"),
            (
                "uprobe.k/malloc",
                "uprobe.k/FILE:FUNCTION or uprobe.k/FILE+0xOFFSET",
            ),
            (
                "uprobe.k/a+16",
                "uprobe.k/FILE:FUNCTION or uprobe.k/FILE+0xOFFSET",
            ),
        ] {
            let expected =
                format!("`f`: section `{section}` names no place in Linux; write `{form}`");
            assert_eq!(read(section), expected);
        }
    }
}

//! Why Linux does not run a program, and what to do.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use warpbpf_object::BtfError;

use crate::section::SectionError;

/// What stops programs of Linux from being loaded or attached. `Display` is the whole message for
/// the user.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum LinuxError {
    #[error(
        "program `{program}` (`{section}`) is for Linux, which does not let this process use `bpf()`: {errno}; run as root, or with CAP_BPF and CAP_PERFMON"
    )]
    NotPermitted {
        program: String,
        section: String,
        errno: Errno,
    },
    #[error(transparent)]
    Section(#[from] SectionError),
    #[error(
        "program `{program}` (`{section}`): Linux refuses it: {errno}{}",
        if log.is_empty() { "; it takes root, or CAP_BPF and CAP_PERFMON, and a Linux that has such programs" } else { log }
    )]
    Rejected {
        program: String,
        section: String,
        errno: Errno,
        /// What its verifier says, on lines of its own.
        log: String,
    },
    #[error("program `{program}` (`{section}`): {what}")]
    Place {
        program: String,
        section: String,
        what: String,
    },
    #[error("program `{program}` (`{section}`): Linux does not attach it: {errno}")]
    Attach {
        program: String,
        section: String,
        errno: Errno,
    },
    #[error("map `{map}`: Linux does not make it: {errno}")]
    Create { map: String, errno: Errno },
    #[error("map `{map}`: Linux does not take its first contents: {errno}")]
    Fill { map: String, errno: Errno },
    #[error(
        "map `{map}` is of a type that Linux does not have; program `{program}`, which is for Linux, cannot use it"
    )]
    NoSuchMap { map: String, program: String },
    #[error("map `{map}`: programs of the GPU and of Linux cannot share {what}")]
    Share { map: String, what: &'static str },
}

/// Why Linux has no such place for a program, or does not show it. `Display` is the whole message.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum PlaceError {
    #[error(
        "the numbers of tracepoints cannot be seen here: mount tracefs (`mount -t tracefs none /sys/kernel/tracing`), and run as root"
    )]
    NoTracefs,
    #[error("Linux has no tracepoint `{category}/{name}`; `{}` has those that there are", folder.display())]
    NoTracepoint {
        category: String,
        name: String,
        folder: PathBuf,
    },
    #[error("Linux has no tracepoint `{name}` with types")]
    NoTypedTracepoint { name: String },
    #[error("`{}` cannot be read: {source}", file.display())]
    Unread { file: PathBuf, source: io::Error },
    #[error("`{}` holds no number", file.display())]
    NoNumber { file: PathBuf },
    #[error("`{}` is no ELF file: {source}", file.display())]
    NoElf {
        file: PathBuf,
        source: object::Error,
    },
    #[error("`{}` has no symbol of a function `{function}`", file.display())]
    NoSymbol { file: PathBuf, function: String },
    #[error("the types of Linux were asked for when the program was loaded")]
    Asked,
    #[error("this Linux shows no types of its own ({}, CONFIG_DEBUG_INFO_BTF)", file.display())]
    NoTypes { file: PathBuf },
    #[error("the types of Linux cannot be read from `{}`: {source}", file.display())]
    UnreadTypes { file: PathBuf, source: io::Error },
    #[error("the types of Linux cannot be read from `{}`: {source}", file.display())]
    BadTypes { file: PathBuf, source: BtfError },
    #[error("the types of module `{module}` cannot be read from `{}`: {source}", file.display())]
    UnreadModule {
        module: String,
        file: PathBuf,
        source: io::Error,
    },
    #[error("the types of module `{module}`: {source}")]
    BadModule { module: String, source: BtfError },
    #[error("Linux does not give the types of module `{module}`: {errno}")]
    HeldBack { module: String, errno: Errno },
    #[error(
        "Linux has no function `{name}` that programs can be attached to; one of a module is named `MODULE:{name}`"
    )]
    NoFunction { name: String },
    #[error("module `{module}` has no function `{name}` that programs can be attached to")]
    NoFunctionInModule { module: String, name: String },
}

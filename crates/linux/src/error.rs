//! Why Linux does not run a program, and what to do.

use rustix::io::Errno;

use crate::section::SectionError;

/// What stops programs of Linux from being loaded or attached. `Display` is the whole message for the user.
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

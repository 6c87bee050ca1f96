//! What can go wrong between a tool and the applications that it watches.

use warpbpf_maps::AccessError;
use warpbpf_object::{ObjectError, SetError};
use warpbpf_wire::{OpsError, SharedError, WireError};

/// A failure of ours, as opposed to the application's.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum Error {
    #[error("cannot read `{path}`: {source}")]
    Read {
        path: String,
        source: std::io::Error,
    },
    #[error("{name}: {source}")]
    Object {
        name: String,
        source: Box<ObjectError>,
    },
    #[error("launches are chosen for program `{program}`: {what}")]
    Choose { program: String, what: String },
    #[error("{name}: {source}")]
    Set { name: String, source: Box<SetError> },
    #[error("`{program}` was not found; give a path or put it on PATH")]
    NoProgram { program: String },
    #[error("`{program}` cannot be run: {reason}")]
    BadProgram { program: String, reason: String },
    #[error(
        "{what} is missing: looked for `{path}`; build it with `cargo xtask build`, or name it with {variable}"
    )]
    Missing {
        what: &'static str,
        path: String,
        variable: &'static str,
    },
    #[error("no GPU: {reason}; use `--device soft` for the built-in soft GPU")]
    NoGpu { reason: String },
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("{0}")]
    Shared(#[from] SharedError),
    /// The other side does not keep to the protocol.
    #[error("an answer about maps cannot be read: {0}")]
    Answer(#[from] OpsError),
    #[error("no application with programs in it came within {seconds} s")]
    NobodyCame { seconds: u64 },
    #[error("nothing was instrumented in process {pid}: {message}")]
    Refused { pid: u32, message: String },
    #[error("the programs in process {pid} are as they were: {message}")]
    Replace {
        pid: u32,
        message: String,
        errno: i32,
    },
    /// What a tool was told, in its words.
    #[error("{message}")]
    Answered { message: String, errno: i32 },
    #[error("process {pid} has no maps yet: they are made when it loads its first kernel")]
    NotReady { pid: u32 },
    #[error("process {pid} has ended: its maps can be read, not changed")]
    Ended { pid: u32 },
    #[error("process {pid} did not answer within {seconds} s")]
    NoAnswer { pid: u32, seconds: u64 },
    #[error("there is no map `{name}`; there are {there}")]
    NoMap { name: String, there: String },
    #[error("map `{map}`: {message}")]
    Map { map: String, message: String },
    #[error("map `{map}`: {what} failed: {}", errno_text(*errno))]
    Operation {
        map: String,
        what: &'static str,
        errno: i32,
    },
    #[error("map `{map}`: the {what} has {found} bytes but {expected} are needed")]
    Size {
        map: String,
        what: &'static str,
        expected: usize,
        found: usize,
    },
    #[error("{0}")]
    Access(#[from] AccessError),
    #[error("there is no running session of warpbpf; start one with `warpbpf run`")]
    NoSession,
}

impl Error {
    /// Linux's number for it, negative; `-EIO` where Linux has none.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            Error::Operation { errno, .. }
            | Error::Replace { errno, .. }
            | Error::Answered { errno, .. } => return *errno,
            Error::Access(error) => return error.errno() as i32,
            Error::NoMap { .. } | Error::NoProgram { .. } => rustix::io::Errno::NOENT,
            Error::Size { .. } | Error::Map { .. } => rustix::io::Errno::INVAL,
            Error::NotReady { .. } => rustix::io::Errno::AGAIN,
            Error::Ended { .. } | Error::NoSession => rustix::io::Errno::NODEV,
            Error::NoAnswer { .. } | Error::NobodyCame { .. } => rustix::io::Errno::TIMEDOUT,
            Error::BadProgram { .. } | Error::Refused { .. } => rustix::io::Errno::ACCESS,
            Error::Object { .. } | Error::Set { .. } | Error::Choose { .. } => {
                rustix::io::Errno::INVAL
            }
            Error::Read { .. }
            | Error::Missing { .. }
            | Error::NoGpu { .. }
            | Error::Wire(_)
            | Error::Shared(_)
            | Error::Answer(_) => rustix::io::Errno::IO,
        };
        -errno.raw_os_error()
    }
}

/// What an error number of a map operation means here, and what to do.
pub fn errno_text(errno: i32) -> String {
    let known = match -errno {
        1 => "the map is read-only (EPERM)",
        2 => "there is no such key (ENOENT)",
        7 => "the map is full, or the key is outside the array (E2BIG)",
        11 => "try again (EAGAIN)",
        16 => {
            "earlier operations have not come to run yet, or a bounded retry ran out: the GPU is full, try again (EBUSY)"
        }
        17 => "the key exists (EEXIST)",
        22 => "the map's type has no such operation, or an argument does not fit (EINVAL)",
        95 => {
            "the session was not prepared for it: start it with operations of the host (`--host-ops`) (EOPNOTSUPP)"
        }
        110 => {
            "it did not come to run in time, because kernels fill the GPU; it may still be done (ETIMEDOUT)"
        }
        _ => return rustix::io::Errno::from_raw_os_error(-errno).to_string(),
    };
    known.to_owned()
}

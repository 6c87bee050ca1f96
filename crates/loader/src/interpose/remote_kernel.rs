//! The calls of this process answered by the kernel of another one ([`super::remote`]).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::{IntoRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::io::Errno;
use warpbpf_wire::WireError;
use warpbpf_wire::inside::{self, BPF, BYTES, CLOSED, DUPLICATED, SUFFIX, request};

use super::guard;
use super::tell::tell;
use crate::tool::notify::Notify;

/// Environment: the socket of the tool whose objects are wanted.
const INSIDE: &str = "WARPBPF_LOADER_INSIDE";

/// This process asks another one.
pub struct Inside(Mutex<Asking>);

struct Asking {
    stream: UnixStream,
    /// The number of the next descriptor.
    spare: Option<RawFd>,
    known: BTreeSet<RawFd>,
}

/// Why there is no connection to a tool.
#[derive(Debug, thiserror::Error)]
enum ConnectError {
    #[error(transparent)]
    Connect(#[from] WireError),
    /// The socket cannot be made one that waits.
    #[error("{error}")]
    Mode {
        /// What the system says.
        error: std::io::Error,
    },
}

/// A connection to another process of this user's.
fn connected(path: &OsStr) -> Result<UnixStream, ConnectError> {
    let stream = UnixStream::from(warpbpf_wire::connect_to_own(path.as_ref())?);
    let waits = stream.set_nonblocking(false);
    waits.map_err(|error| ConnectError::Mode { error })?;
    Ok(stream)
}

/// The process that is asked, if one is.
pub fn inside_another() -> Option<&'static Inside> {
    static INSIDE_ANOTHER: OnceLock<Option<Inside>> = OnceLock::new();
    let inside = INSIDE_ANOTHER.get_or_init(|| {
        let mut path = std::fs::canonicalize(std::env::var_os(INSIDE)?)
            .unwrap_or_default()
            .into_os_string();
        path.push(SUFFIX);
        let stream = match connected(&path) {
            Ok(stream) => stream,
            Err(error) => {
                tell(&format!("no tool is at `{}`: {error}", path.display()));
                return None;
            }
        };
        if let Ok(pid) = warpbpf_wire::peer(&stream).map(|peer| peer.pid)
            && let Some(pid) = pid
        {
            // SAFETY: it only permits the other process, of the same user, to reach this one's
            // memory.
            unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(pid)) };
        }
        guard::own_process();
        Some(Inside(Mutex::new(Asking {
            stream,
            spare: None,
            known: BTreeSet::new(),
        })))
    });
    inside.as_ref()
}

impl Inside {
    fn asking(&self) -> MutexGuard<'_, Asking> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A command of this process.
    ///
    /// # Errors
    /// The other one's, or `EIO` if it is gone.
    pub fn bpf(&self, command: u32, attr: u64, size: u32) -> Result<i64, Errno> {
        let mut asking = self.asking();
        let spare = match asking.spare.take() {
            Some(fd) => fd,
            None => Notify::new()?.into_fd().into_raw_fd(),
        };
        asking.spare = Some(spare);
        let numbers = [u64::from(command), attr, u64::from(size)];
        let answer = asking.ask(&request(BPF, spare, numbers))?;
        if answer == i64::from(spare) {
            asking.spare = None;
            asking.known.insert(spare);
        }
        Ok(answer)
    }
}

impl Asking {
    fn ask(&mut self, request: &[u8; BYTES]) -> Result<i64, Errno> {
        inside::ask(&mut self.stream, request)
    }
}

/// This process has closed a descriptor.
pub fn closed(fd: RawFd) {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    if let Some(inside) = inside_another() {
        let mut asking = inside.asking();
        if asking.known.remove(&fd) {
            // One that is gone has nothing of ours.
            let _ = asking.ask(&request(CLOSED, fd, [0; 3]));
        }
    }
}

/// The same of all from `first` to `last`.
pub fn closed_all(first: u32, last: u32) {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    if let Some(inside) = inside_another() {
        let mut asking = inside.asking();
        let range = |fd: &RawFd| u32::try_from(*fd).is_ok_and(|fd| (first..=last).contains(&fd));
        let all: Vec<RawFd> = asking.known.iter().copied().filter(range).collect();
        for fd in all {
            asking.known.remove(&fd);
            let _ = asking.ask(&request(CLOSED, fd, [0; 3]));
        }
    }
}

/// This process has duplicated a descriptor.
pub fn duplicated(from: RawFd, to: RawFd) {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    if let Some(inside) = inside_another() {
        let mut asking = inside.asking();
        if asking.known.contains(&from) {
            asking.known.insert(to);
            let _ = asking.ask(&request(DUPLICATED, from, [to as u64, 0, 0]));
        } else if asking.known.remove(&to) {
            let _ = asking.ask(&request(CLOSED, to, [0; 3]));
        }
    }
}

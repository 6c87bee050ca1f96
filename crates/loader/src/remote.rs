//! `bpf()` of one process answered by the kernel of another: `bpftool` looks into a tool that runs.
//!
//! The one that asks sends command, address and size; the tool reads and writes its memory itself,
//! as the kernel would (`process_vm_readv`, which the one that asks allows). Descriptors are
//! numbers of the one that asks: it reserves the next one beforehand, and says when one was closed
//! or duplicated.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::os::fd::{IntoRawFd as _, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use warpbpf_wire::inside::{
    self, BPF, BYTES, CLOSED, DUPLICATED, LAUNCH, LAUNCHED, LONGEST_NAME, SUFFIX, request,
};

use crate::global::{self, tell};
use crate::guard;
use crate::tool::notify::Notify;
use crate::tool::user::Process;

/// Environment: the socket of the tool whose objects are wanted.
const INSIDE: &str = "WARPBPF_LOADER_INSIDE";
/// Connections at once: each has a thread and a descriptor of the tool's.
const MOST: usize = 64;
/// After a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

static SOCKET: OnceLock<PathBuf> = OnceLock::new();
static CONNECTIONS: AtomicU64 = AtomicU64::new(1);
static SERVED: AtomicUsize = AtomicUsize::new(0);

/// A connection that is served.
struct Served;

impl Served {
    /// `None` if there are as many as may be.
    fn begin() -> Option<Served> {
        let served = SERVED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
            (count < MOST).then_some(count + 1)
        });
        served.ok().map(|_| Served)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        SERVED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Lets other processes ask, beside the control socket.
pub fn serve(control: &Path) {
    let mut path = control.as_os_str().to_owned();
    path.push(SUFFIX);
    let path = PathBuf::from(path);
    let listener = match UnixListener::bind(&path) {
        Ok(listener) => listener,
        // Nobody can look in; all else works.
        Err(error) => return tell(&format!("`{}`: {error}", path.display())),
    };
    let _ = SOCKET.set(path);
    let started = std::thread::Builder::new()
        .name("warpbpf-remote".into())
        .spawn(move || {
            guard::own_thread();
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    // It fails again at once while the tool is out of descriptors.
                    std::thread::sleep(PAUSE);
                    continue;
                };
                // One that cannot be served is hung up on.
                let Some(served) = Served::begin() else {
                    continue;
                };
                let answers = std::thread::Builder::new().name("warpbpf-remote".into());
                let _ = answers.spawn(move || {
                    let _served = served;
                    guard::own_thread();
                    let caught = std::panic::catch_unwind(move || serve_one(stream));
                    if let Err(payload) = caught {
                        std::mem::forget(payload);
                    }
                });
            }
        });
    if let Err(error) = started {
        tell(&error.to_string());
    }
}

/// Removes the socket.
pub fn end() {
    if let Some(path) = SOCKET.get() {
        let _ = std::fs::remove_file(path);
    }
}

fn serve_one(mut stream: UnixStream) {
    let Ok(peer) = warpbpf_wire::peer(&stream) else {
        return;
    };
    // Whom we cannot see has no memory that we could read.
    let Some(pid) = peer.pid.map(u32::cast_signed) else {
        return;
    };
    if peer.uid != rustix::process::geteuid().as_raw() {
        return;
    }
    let user = Process::other(pid);
    let number = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
    let mut bytes = [0; BYTES];
    while stream.read_exact(&mut bytes).is_ok() {
        let (what, fd, numbers) = inside::read(&bytes);
        let answer = match what {
            LAUNCH => {
                let mut name = vec![0; numbers[0].min(LONGEST_NAME) as usize];
                // Nobody knows where a longer one ends.
                if numbers[0] > LONGEST_NAME || stream.read_exact(&mut name).is_err() {
                    break;
                }
                global::launch_wanted(pid as u32, &String::from_utf8_lossy(&name))
            }
            LAUNCHED => global::launched(pid as u32),
            _ => answer(what, fd, numbers, number, &user),
        };
        let answer = answer.unwrap_or_else(|error| -i64::from(error.raw_os_error()));
        if stream.write_all(&answer.to_ne_bytes()).is_err() {
            break;
        }
    }
    let mut kernel = global::kernel();
    kernel.gone(number);
    kernel.launches.remove(&(pid as u32));
    drop(kernel);
    global::noticed();
}

/// Answers what is about the tool's kernel.
fn answer(
    what: u32,
    fd: RawFd,
    [a, b, c]: [u64; 3],
    connection: u64,
    user: &Process,
) -> Result<i64, Errno> {
    let mut kernel = global::kernel();
    let answer = kernel.asked_by(connection, fd, |kernel| match what {
        BPF => kernel.bpf(a as u32, b, c as u32, user),
        CLOSED => {
            kernel.closed(fd);
            Ok(0)
        }
        DUPLICATED => {
            kernel.duplicated(fd, a as RawFd);
            Ok(0)
        }
        _ => Err(Errno::INVAL),
    });
    drop(kernel);
    global::noticed();
    answer
}

/// This process asks another one.
pub struct Inside(Mutex<Asking>);

struct Asking {
    stream: UnixStream,
    /// The number of the next descriptor.
    spare: Option<RawFd>,
    known: BTreeSet<RawFd>,
}

/// A connection to another process of this user's.
fn connected(path: &OsStr) -> Result<UnixStream, String> {
    let socket = warpbpf_wire::connect_to_own(path.as_ref()).map_err(|error| error.to_string())?;
    let stream = UnixStream::from(socket);
    let waits = stream.set_nonblocking(false);
    waits.map_err(|error| error.to_string()).map(|()| stream)
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

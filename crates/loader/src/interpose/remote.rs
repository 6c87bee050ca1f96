//! `bpf()` of one process answered by the kernel of another: `bpftool` looks into a tool that runs.
//!
//! The one that asks sends command, address and size; the tool reads and writes its memory itself,
//! as the kernel would (`process_vm_readv`, which the one that asks allows). Descriptors are
//! numbers of the one that asks: it reserves the next one beforehand, and says when one was closed
//! or duplicated.

use std::io::{Read as _, Write as _};
use std::os::fd::RawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use warpbpf_wire::inside::{
    self, BPF, BYTES, CLOSED, DUPLICATED, LAUNCH, LAUNCHED, LONGEST_NAME, SUFFIX,
};

use super::tell::tell;
use super::{global, guard, launches};
use crate::tool::user::Process;

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

/// Lets other processes ask, beside the control socket. `noticed` is called when one has asked, as
/// that may have changed what is attached.
pub fn serve(control: &Path, noticed: fn()) {
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
                    let caught = std::panic::catch_unwind(move || serve_one(stream, noticed));
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

fn serve_one(mut stream: UnixStream, noticed: fn()) {
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
                launches::launch_wanted(pid as u32, &String::from_utf8_lossy(&name))
            }
            LAUNCHED => launches::launched(pid as u32),
            _ => {
                let answer = answer(what, fd, numbers, number, &user);
                noticed();
                answer
            }
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
    noticed();
}

/// Answers what is about the tool's kernel.
fn answer(
    what: u32,
    fd: RawFd,
    [a, b, c]: [u64; 3],
    connection: u64,
    user: &Process,
) -> Result<i64, Errno> {
    global::kernel().asked_by(connection, fd, |kernel| match what {
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
    })
}

//! Descriptors of another process, taken as they are and looked at before they are used: by then the process may have put something
//! else in their place. Nothing is opened through `/proc/PID/fd`, which would be done with the rights of this process.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat};
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::error::InjectError;
use crate::process;

/// `PIDFD_THREAD`
const OF_A_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);

/// A copy of another process's descriptor.
fn take(pid: u32, descriptor: i32) -> Result<OwnedFd, InjectError> {
    let failed = |call| move |errno: rustix::io::Errno| InjectError::os(pid, call, errno.into());
    let living = process::living_thread(pid).ok_or(InjectError::Ended { pid })?;
    // A main thread that has ended has no descriptors any more.
    let flags = match living == pid {
        true => PidfdFlags::empty(),
        false => OF_A_THREAD,
    };
    let id = i32::try_from(living).ok().and_then(Pid::from_raw);
    let id = id.ok_or(InjectError::NoProcess { pid })?;
    let process = pidfd_open(id, flags).map_err(|errno| match living == pid {
        true => failed("pidfd_open")(errno),
        false => InjectError::MainThread { pid },
    })?;
    pidfd_getfd(&process, descriptor, PidfdGetfdFlags::empty()).map_err(failed("pidfd_getfd"))
}

/// A copy of one end of a pair of sockets that was made there.
pub(crate) fn take_socket(pid: u32, descriptor: i32) -> Result<OwnedFd, InjectError> {
    let socket = take(pid, descriptor)?;
    let is_one = socket_domain(&socket).is_ok_and(|domain| domain == AddressFamily::UNIX)
        && socket_type(&socket).is_ok_and(|kind| kind == SocketType::STREAM);
    match is_one {
        true => Ok(socket),
        false => Err(swapped(pid, "socket")),
    }
}

/// Writes a file into memory that was made there (`memfd_create`) and is empty, and sees to it that nobody can change it any more.
pub(crate) fn fill(pid: u32, descriptor: i32, bytes: &[u8]) -> Result<(), InjectError> {
    let memory = take(pid, descriptor)?;
    let there = fstat(&memory);
    // Only memory has seals, and nothing of what `open` gives.
    let is_ours = fcntl_get_seals(&memory).is_ok_and(|seals| seals.is_empty())
        && there.is_ok_and(|there| {
            FileType::from_raw_mode(there.st_mode) == FileType::RegularFile && there.st_size == 0
        });
    if !is_ours {
        return Err(swapped(pid, "memory"));
    }
    let mut file = File::from(memory);
    file.write_all(bytes)
        .map_err(|e| InjectError::os(pid, "writing the agent into the memory", e))?;
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)
        .map_err(|errno| InjectError::os(pid, "sealing the memory", errno.into()))
}

fn swapped(pid: u32, what: &'static str) -> InjectError {
    InjectError::Swapped { pid, what }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd as _, FromRawFd as _};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use super::*;

    fn memory(flags: u32) -> OwnedFd {
        // SAFETY: a NUL-terminated name; the descriptor is ours.
        unsafe {
            let made = libc::memfd_create(c"of a test".as_ptr(), libc::MFD_CLOEXEC | flags);
            assert!(made >= 0);
            OwnedFd::from_raw_fd(made)
        }
    }

    /// What a process that may not be looked into says.
    fn forbidden<T>(done: &Result<T, InjectError>) -> bool {
        matches!(done, Err(InjectError::Os { source, .. }) if source.raw_os_error() == Some(libc::EPERM))
    }

    #[test]
    fn only_empty_memory_is_written_to_and_it_is_sealed_then() {
        let pid = std::process::id();
        let own = memory(libc::MFD_ALLOW_SEALING);
        let filled = fill(pid, own.as_raw_fd(), b"agent");
        if forbidden(&filled) {
            return;
        }
        filled.unwrap();
        assert_eq!(fstat(&own).unwrap().st_size, 5);
        assert!(fcntl_get_seals(&own).unwrap().contains(SealFlags::WRITE));
        let message = |descriptor: i32| fill(pid, descriptor, b"agent").unwrap_err().to_string();
        let expected = format!(
            "process {pid} has put something else in the place of the memory that was made in it for the agent"
        );
        assert_eq!(message(own.as_raw_fd()), expected, "not twice");
        let path = std::env::temp_dir().join(format!("warpbpf-precious-{pid}"));
        std::fs::write(&path, "").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        assert_eq!(message(file.as_raw_fd()), expected, "a file");
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        std::fs::write(&path, "precious").unwrap();
        // SAFETY: a NUL-terminated path; the descriptor is ours.
        let only_path = unsafe {
            let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
            OwnedFd::from_raw_fd(libc::open(name.as_ptr(), libc::O_PATH))
        };
        assert_eq!(
            message(only_path.as_raw_fd()),
            expected,
            "no more than a path"
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            message(memory(0).as_raw_fd()),
            expected,
            "sealed by somebody"
        );
    }

    #[test]
    fn only_a_stream_is_spoken_through() {
        let pid = std::process::id();
        let (stream, _other) = UnixStream::pair().unwrap();
        let taken = take_socket(pid, stream.as_raw_fd());
        if forbidden(&taken) {
            return;
        }
        taken.unwrap();
        let datagram = UnixDatagram::unbound().unwrap();
        let file = memory(0);
        for other in [datagram.as_raw_fd(), file.as_raw_fd()] {
            let error = take_socket(pid, other).unwrap_err();
            assert!(
                matches!(error, InjectError::Swapped { what: "socket", .. }),
                "{error}"
            );
        }
        assert!(take_socket(pid, 1 << 20).is_err());
    }
}

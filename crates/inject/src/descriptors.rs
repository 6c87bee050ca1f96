//! Descriptors of another process, taken as they are and looked at before they are used: by then
//! the process may have put something else in their place. Nothing is opened through
//! `/proc/PID/fd`, which would be done with the rights of this process.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::fs::{FileType, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat};
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::error::InjectError;
use crate::proc;

/// `PIDFD_THREAD`
const OF_A_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);

/// A copy of another process's descriptor.
fn take(pid: u32, descriptor: i32) -> Result<OwnedFd, InjectError> {
    let failed = |call| move |errno: rustix::io::Errno| InjectError::os(pid, call, errno.into());
    let living = proc::living_thread(pid).ok_or(InjectError::Ended { pid })?;
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

/// A descriptor that was made there, and a copy of it.
#[derive(Debug)]
pub(crate) struct Taken {
    pid: u32,
    /// Its number there.
    pub(crate) number: i32,
    pub(crate) own: OwnedFd,
}

impl Taken {
    /// One end of a pair of sockets.
    pub(crate) fn socket(pid: u32, number: i32) -> Result<Taken, InjectError> {
        let own = take(pid, number).map_err(|error| closed(error, "socket"))?;
        let is_one = socket_domain(&own).is_ok_and(|domain| domain == AddressFamily::UNIX)
            && socket_type(&own).is_ok_and(|kind| kind == SocketType::STREAM);
        match is_one {
            true => Ok(Taken { pid, number, own }),
            false => Err(swapped(pid, "socket")),
        }
    }

    /// Memory (`memfd_create`) that is empty.
    pub(crate) fn memory(pid: u32, number: i32) -> Result<Taken, InjectError> {
        let own = take(pid, number).map_err(|error| closed(error, "memory"))?;
        let there = fstat(&own);
        // Only memory has seals, and nothing of what `open` gives.
        let is_ours = fcntl_get_seals(&own).is_ok_and(|seals| seals.is_empty())
            && there.is_ok_and(|there| {
                FileType::from_raw_mode(there.st_mode) == FileType::RegularFile
                    && there.st_size == 0
            });
        match is_ours {
            true => Ok(Taken { pid, number, own }),
            false => Err(swapped(pid, "memory")),
        }
    }

    /// Writes a file into memory, and sees to it that nobody can change it any more.
    pub(crate) fn fill(&self, bytes: &[u8]) -> Result<(), InjectError> {
        let failed = |call| move |error| InjectError::os(self.pid, call, error);
        let copy = self.own.try_clone().map_err(failed("dup"))?;
        let mut file = File::from(copy);
        file.write_all(bytes)
            .map_err(failed("writing the agent into the memory"))?;
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&file, seals).map_err(|errno| failed("sealing the memory")(errno.into()))
    }

    /// It has its number there still. Where the kernel does not say, it is taken to have it.
    pub(crate) fn is_there(&self) -> bool {
        /// `KCMP_FILE`
        const FILE: i32 = 0;
        let living = proc::living_thread(self.pid).unwrap_or(self.pid);
        // SAFETY: a call that only compares.
        let different = unsafe {
            libc::syscall(
                libc::SYS_kcmp,
                libc::gettid(),
                living as i32,
                FILE,
                self.own.as_raw_fd() as libc::c_ulong,
                self.number as libc::c_ulong,
            )
        };
        let error = std::io::Error::last_os_error().raw_os_error();
        different == 0 || (different < 0 && error != Some(libc::EBADF))
    }
}

/// A number that nobody has is one that somebody has closed.
fn closed(error: InjectError, what: &'static str) -> InjectError {
    match error {
        InjectError::Os { pid, source, .. } if source.raw_os_error() == Some(libc::EBADF) => {
            swapped(pid, what)
        }
        other => other,
    }
}

fn swapped(pid: u32, what: &'static str) -> InjectError {
    InjectError::Swapped { pid, what }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{FromRawFd as _, IntoRawFd as _};
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
        let taken = Taken::memory(pid, own.as_raw_fd());
        if forbidden(&taken) {
            return;
        }
        taken.unwrap().fill(b"agent").unwrap();
        assert_eq!(fstat(&own).unwrap().st_size, 5);
        assert!(fcntl_get_seals(&own).unwrap().contains(SealFlags::WRITE));
        let message = |descriptor: i32| Taken::memory(pid, descriptor).unwrap_err().to_string();
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
        let taken = Taken::socket(pid, stream.as_raw_fd());
        if forbidden(&taken) {
            return;
        }
        let taken = taken.unwrap();
        assert!(taken.is_there());
        let datagram = UnixDatagram::unbound().unwrap();
        let file = memory(0);
        for other in [datagram.as_raw_fd(), file.as_raw_fd()] {
            let error = Taken::socket(pid, other).unwrap_err();
            assert!(
                matches!(error, InjectError::Swapped { what: "socket", .. }),
                "{error}"
            );
        }
        let error = Taken::socket(pid, 1 << 20).unwrap_err();
        assert!(
            matches!(error, InjectError::Swapped { .. }),
            "closed: {error}"
        );
        // Somebody else has the number.
        let number = stream.as_raw_fd();
        // SAFETY: both are ours, and the stream ends with the test.
        assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), number) }, number);
        assert!(!taken.is_there());
        // SAFETY: as above.
        assert_eq!(unsafe { libc::close(stream.into_raw_fd()) }, 0);
        assert!(!taken.is_there());
    }
}

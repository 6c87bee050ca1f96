//! Who is at the other end of a socket, also where that one is outside our pid namespace.
//!
//! `rustix` has this, but a process number there cannot be 0, which is what Linux says of a process
//! that we cannot see.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

/// A process at the other end, as it was when it connected or listened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its number here; `None` if it is outside our pid namespace.
    pub pid: Option<u32>,
    /// The user that it runs as.
    pub uid: u32,
}

/// Asks Linux for the other end's process (unix(7), `SO_PEERCRED`).
///
/// # Errors
/// What the call says.
pub fn peer(socket: impl AsFd) -> Result<Peer, Errno> {
    let mut found = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: a descriptor that lives, and a writable local of the size given.
    let code = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &mut bytes,
        )
    };
    if code != 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    Ok(Peer::new(&found))
}

impl Peer {
    fn new(found: &libc::ucred) -> Peer {
        Peer {
            pid: u32::try_from(found.pid).ok().filter(|pid| *pid != 0),
            uid: found.uid,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_other_end_is_told() {
        let (one, _other) = UnixStream::pair().unwrap();
        let expected = Peer {
            pid: Some(std::process::id()),
            uid: rustix::process::geteuid().as_raw(),
        };
        assert_eq!(peer(&one), Ok(expected));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(peer(&file), Err(Errno::NOTSOCK));
    }

    #[test]
    fn a_process_that_cannot_be_seen_has_no_number() {
        let outside = libc::ucred {
            pid: 0,
            uid: 7,
            gid: 7,
        };
        assert_eq!(Peer::new(&outside), Peer { pid: None, uid: 7 });
    }
}

//! Where a tool waits for agents: a socket of mode 0600 in a directory of mode 0700 that is removed at the end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, chmod, mkdir, unlink};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};
use std::time::{Duration, Instant};

use crate::ToolConnection;
use crate::connection::{Connection, WireError};

/// A bound control socket. Dropping it removes socket and directory.
#[derive(Debug)]
pub struct Listener {
    acceptor: Acceptor,
    directory: PathBuf,
}

/// A bound socket of mode 0600. Dropping it removes it.
#[derive(Debug)]
pub struct Acceptor {
    socket: OwnedFd,
    path: PathBuf,
}

impl Acceptor {
    /// Listens at `path`, in a directory that only this user may enter.
    pub fn bind(path: &Path) -> Result<Acceptor, WireError> {
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .map_err(failed("make", path))?;
        let address = SocketAddrUnix::new(path).map_err(failed("name", path))?;
        bind(&socket, &address).map_err(failed("bind", path))?;
        let acceptor = Acceptor {
            socket,
            path: path.to_owned(),
        };
        chmod(path, Mode::RUSR | Mode::WUSR).map_err(failed("protect", path))?;
        listen(&acceptor.socket, 64).map_err(failed("listen on", path))?;
        Ok(acceptor)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next one who connects, if somebody does now.
    pub fn accept(&self) -> Result<Option<OwnedFd>, WireError> {
        loop {
            match accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(socket) => return Ok(Some(socket)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => {
                    return Err(WireError::Os {
                        call: "accept",
                        errno,
                    });
                }
            }
        }
    }
}

impl AsFd for Acceptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        let _ = unlink(&self.path);
    }
}

impl Listener {
    /// Makes a private directory under `base` (for instance the user's runtime directory) and listens in it.
    pub fn bind(base: &Path) -> Result<Listener, WireError> {
        let pid = rustix::process::getpid().as_raw_nonzero();
        let mut number = 0u32;
        let directory = loop {
            let directory = base.join(format!("warpbpf-{pid}-{number}"));
            match mkdir(&directory, Mode::RWXU) {
                Ok(()) => break directory,
                // Left behind by a killed tool of the same process id, or another listener of this process.
                Err(Errno::EXIST) if number < 1000 => number += 1,
                Err(errno) => return Err(failed("make a directory for", &directory)(errno)),
            }
        };
        match Acceptor::bind(&directory.join("control")) {
            Ok(acceptor) => Ok(Listener {
                acceptor,
                directory,
            }),
            Err(error) => {
                let _ = std::fs::remove_dir_all(&directory);
                Err(error)
            }
        }
    }

    /// What `WARPBPF_SOCKET` must say in the target's environment.
    pub fn path(&self) -> &Path {
        self.acceptor.path()
    }

    /// The next agent; `None` when `timeout` passed without one. An agent of another user is turned away and an error.
    pub fn accept(&self, timeout: Duration) -> Result<Option<ToolConnection>, WireError> {
        let end = Instant::now() + timeout;
        loop {
            if let Some(socket) = self.acceptor.accept()? {
                return Connection::new(socket).map(Some);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let timeout = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let mut set = [PollFd::new(&self.acceptor, PollFlags::IN)];
            match poll(&mut set, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(WireError::Os {
                        call: "poll",
                        errno,
                    });
                }
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.acceptor.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = unlink(self.acceptor.path());
        let _ = std::fs::remove_dir(&self.directory);
    }
}

fn failed(what: &'static str, path: &Path) -> impl Fn(Errno) -> WireError {
    let path = path.display().to_string();
    move |errno| WireError::Path {
        what,
        path: path.clone(),
        errno,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::AgentConnection;
    use crate::message::{ToAgent, ToTool};

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_socket_is_private_and_goes_away() {
        let listener = Listener::bind(&std::env::temp_dir()).unwrap();
        let path = listener.path().to_owned();
        let directory = path.parent().unwrap().to_owned();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(&directory), 0o700);
        assert!(listener.accept(Duration::ZERO).unwrap().is_none());
        assert!(listener.accept(Duration::from_millis(5)).unwrap().is_none());
        let mut agent = AgentConnection::connect(&path).unwrap();
        let mut tool = listener
            .accept(Duration::from_secs(1))
            .unwrap()
            .expect("an agent");
        let second = Duration::from_secs(1);
        tool.send(&ToAgent::Observe, &[], None, second).unwrap();
        assert_eq!(
            agent.recv(second).unwrap().unwrap().message,
            ToAgent::Observe
        );
        agent
            .send(&ToTool::Snapshotted { token: 3 }, &[], None, second)
            .unwrap();
        assert_eq!(
            tool.recv(second).unwrap().unwrap().message,
            ToTool::Snapshotted { token: 3 }
        );
        drop(listener);
        assert!(!directory.exists());
    }

    #[test]
    fn two_listeners_of_a_process_do_not_meet() {
        let base = std::env::temp_dir();
        let (a, b) = (
            Listener::bind(&base).unwrap(),
            Listener::bind(&base).unwrap(),
        );
        assert_ne!(a.path(), b.path());
    }

    #[test]
    fn a_missing_base_is_named() {
        let error = Listener::bind(Path::new("/nonexistent")).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with(
                "cannot make a directory for the control socket `/nonexistent/warpbpf-"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_named_and_cleaned_up() {
        let base =
            std::env::temp_dir().join(format!("w{}-{}", std::process::id(), "x".repeat(120)));
        std::fs::create_dir(&base).unwrap();
        let error = Listener::bind(&base).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot name the control socket")
        );
        assert_eq!(std::fs::read_dir(&base).unwrap().count(), 0);
        std::fs::remove_dir(&base).unwrap();
    }
}

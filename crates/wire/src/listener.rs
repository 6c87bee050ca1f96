//! Where a tool waits for agents: a socket of mode 0600 in a directory of mode 0700 that is removed
//! at the end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Mode, OFlags, fchmod, fstat, lstat, mkdir, open, rmdir, unlinkat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};
use std::time::{Duration, Instant};

use crate::connection::{Connection, ToolConnection, WireError};

/// Descriptors that an agent's first messages bring, and as many again: maps' memory and launches'.
const SPARE: usize = 4;

/// A bound control socket. Dropping it removes socket and directory.
#[derive(Debug)]
pub struct Listener {
    /// Before its folder.
    acceptor: Acceptor,
    #[expect(dead_code, reason = "its end takes the folder away")]
    directory: Folder,
}

/// A folder that is taken away when it is dropped, if it is empty.
#[derive(Debug)]
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // It follows no link.
        let _ = rmdir(&self.0);
    }
}

/// A bound socket of mode 0600. Dropping it removes it.
#[derive(Debug)]
pub struct Acceptor {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode of its folder.
    folder: (u64, u64),
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
        // Linux gives its file this mode, so at no time there is one that others may use.
        fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(failed("protect", path))?;
        let folder = lstat(folder_of(path)).map_err(failed("bind", path))?;
        bind(&socket, &address).map_err(failed("bind", path))?;
        let acceptor = Acceptor {
            socket,
            path: path.to_owned(),
            folder: (folder.st_dev, folder.st_ino),
        };
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
            let mut set = [PollFd::new(&self.socket, PollFlags::IN)];
            if let Ok(0) = poll(&mut set, Some(&Timespec::default())) {
                return Ok(None);
            }
            self.spare().map_err(|errno| WireError::Os {
                call: "accept",
                errno,
            })?;
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

    /// There are descriptors for what comes with the first messages, too: memory that is shared
    /// would be lost without, and with it the session. Until there are, who comes waits.
    fn spare(&self) -> Result<(), Errno> {
        let spare = (0..SPARE).map(|_| fcntl_dupfd_cloexec(&self.socket, 0));
        spare.collect::<Result<Vec<OwnedFd>, Errno>>().map(drop)
    }
}

impl AsFd for Acceptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        // Where others may rename what is in the folder's own folder, another one may have its name
        // by now, or a link to one of this user's.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (Ok(folder), Some(name)) = (
            open(folder_of(&self.path), flags, Mode::empty()),
            self.path.file_name(),
        ) else {
            return;
        };
        if fstat(&folder).is_ok_and(|there| (there.st_dev, there.st_ino) == self.folder) {
            let _ = unlinkat(&folder, name, AtFlags::empty());
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

impl Listener {
    /// Makes a private directory under `base` (for instance the user's runtime directory) and
    /// listens in it.
    pub fn bind(base: &Path) -> Result<Listener, WireError> {
        let pid = rustix::process::getpid().as_raw_nonzero();
        let mut number = 0u32;
        let directory = loop {
            let directory = base.join(format!("warpbpf-{pid}-{number}"));
            match mkdir(&directory, Mode::RWXU) {
                Ok(()) => break directory,
                // Left behind by a killed tool of the same process id, or another listener of this
                // process.
                Err(Errno::EXIST) if number < 1000 => number += 1,
                Err(errno) => return Err(failed("make a directory for", &directory)(errno)),
            }
        };
        let directory = Folder(directory);
        Ok(Listener {
            acceptor: Acceptor::bind(&directory.0.join("control"))?,
            directory,
        })
    }

    /// What `WARPBPF_SOCKET` must say in the target's environment.
    pub fn path(&self) -> &Path {
        self.acceptor.path()
    }

    /// The next agent; `None` when `timeout` passed without one. An agent of another user is turned
    /// away and an error.
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
    use crate::connection::AgentConnection;
    use crate::message::{ToAgent, ToTool};

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// Runs itself again, as a limit holds for a whole process.
    #[test]
    fn who_comes_waits_until_there_are_descriptors_for_memory_too() {
        const AGAIN: &str = "WARPBPF_TEST_FEW_DESCRIPTORS";
        let name = "listener::tests::who_comes_waits_until_there_are_descriptors_for_memory_too";
        if std::env::var_os(AGAIN).is_none() {
            let mut again = std::process::Command::new(std::env::current_exe().unwrap());
            again.args(["--exact", name]).env(AGAIN, "1");
            let output = again.output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && text.contains("1 passed"),
                "{text}"
            );
            return;
        }
        let listener = Listener::bind(&std::env::temp_dir()).unwrap();
        let _agent = std::os::unix::net::UnixStream::connect(listener.path()).unwrap();
        let mut held: Vec<OwnedFd> = Vec::new();
        // All descriptors up to a limit, and then as many are free as one less than are needed.
        let limit = libc::rlimit {
            rlim_cur: 64,
            rlim_max: 64,
        };
        // SAFETY: a system call with memory that lives.
        let limited = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
        assert_eq!(limited, 0);
        while let Ok(fd) = fcntl_dupfd_cloexec(&listener, 0) {
            held.push(fd);
        }
        held.truncate(held.len() - (SPARE - 1));
        let refused = listener.accept(Duration::ZERO).map(|_| ()).unwrap_err();
        let expected = WireError::Os {
            call: "accept",
            errno: Errno::MFILE,
        };
        assert_eq!(refused.to_string(), expected.to_string());
        held.pop();
        assert!(
            listener.accept(Duration::ZERO).unwrap().is_some(),
            "it waited"
        );
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

    #[test]
    fn another_folder_in_the_place_of_its_own_is_left_alone() {
        let base = std::env::temp_dir().join(format!("warpbpf-swapped-{}", std::process::id()));
        let precious = base.join("precious");
        std::fs::create_dir_all(&precious).unwrap();
        std::fs::write(precious.join("control"), "mine").unwrap();
        let listener = Listener::bind(&base).unwrap();
        let directory = listener.path().parent().unwrap().to_owned();
        std::fs::rename(&directory, base.join("aside")).unwrap();
        std::os::unix::fs::symlink(&precious, &directory).unwrap();
        drop(listener);
        let listener = Listener::bind(&base).unwrap();
        let directory = listener.path().parent().unwrap().to_owned();
        std::fs::rename(&directory, base.join("aside too")).unwrap();
        std::fs::rename(&precious, &directory).unwrap();
        drop(listener);
        assert_eq!(std::fs::read(directory.join("control")).unwrap(), b"mine");
        std::fs::remove_dir_all(&base).unwrap();
    }
}

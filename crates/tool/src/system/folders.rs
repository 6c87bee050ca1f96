//! Folders of tools that were killed: each tool makes one for its sockets, and nobody else takes it
//! away.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// A tool that has just begun has not made its socket yet.
const NEW: Duration = Duration::from_secs(10);

/// The folder of this user's sockets: `XDG_RUNTIME_DIR` if that is this user's, else the folder for
/// temporary files, in which
/// each tool makes a folder of its own that nobody else may enter.
pub fn runtime_folder() -> PathBuf {
    warpbpf_wire::rendezvous::runtime_folder().unwrap_or_else(std::env::temp_dir)
}

/// Takes away this user's folders in `base` whose tools are gone.
pub(crate) fn left_folders(base: &Path) {
    let Ok(entries) = std::fs::read_dir(base) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(is_ours) && is_left(&entry.path()) {
            take_away(&entry.path());
        }
    }
}

/// `warpbpf-PID-NUMBER`
fn is_ours(name: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let numbers = name.strip_prefix("warpbpf-");
    let parts = numbers.and_then(|numbers| numbers.split_once('-'));
    parts.is_some_and(|(pid, nth)| number(pid) && number(nth))
}

/// Nobody listens there. The folder of another user is none of our business.
fn is_left(folder: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let Ok(there) = std::fs::symlink_metadata(folder) else {
        return false;
    };
    if !there.is_dir() || there.uid() != own {
        return false;
    }
    match listens(&folder.join("control")) {
        Some(listens) => !listens,
        None => {
            let age = there.modified().ok().and_then(|at| at.elapsed().ok());
            age.is_some_and(|age| age > NEW)
        }
    }
}

/// Somebody has the socket of this name; `None` if there is no such file. A socket of another type
/// is turned away where one is, and nobody is asked to accept it.
fn listens(path: &Path) -> Option<bool> {
    let asking = socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    );
    let (Ok(asking), Ok(address)) = (asking, SocketAddrUnix::new(path)) else {
        return Some(true);
    };
    match connect(&asking, &address) {
        Err(Errno::NOENT) => None,
        Err(Errno::CONNREFUSED) => Some(false),
        // Of the type that it should be, or what cannot be told.
        _ => Some(true),
    }
}

/// Sockets, and then the folder, if nothing else was in it.
fn take_away(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        if is_socket && listens(&entry.path()) == Some(false) {
            // Somebody else may take it away, too.
            let _ = std::fs::remove_file(entry.path());
        }
    }
    let _ = std::fs::remove_dir(folder);
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn folders_of_tools_that_are_gone_are_taken_away() {
        let base = std::env::temp_dir().join(format!("sweep-{}", std::process::id()));
        let folder = |name: &str| {
            let folder = base.join(name);
            std::fs::create_dir_all(&folder).unwrap();
            folder
        };
        let bind =
            |name: &str, socket: &str| UnixListener::bind(folder(name).join(socket)).unwrap();
        // What was bound by a tool that was killed.
        drop((bind("warpbpf-1-0", "control"), bind("warpbpf-1-0", "maps")));
        let lives = bind("warpbpf-2-0", "control");
        let other = bind("warpbpf-3-0", "maps");
        drop(bind("warpbpf-3-0", "control"));
        // One that has just begun, one with a file of somebody's, and one that only looks alike.
        folder("warpbpf-4-0");
        drop(bind("warpbpf-5-0", "control"));
        std::fs::write(base.join("warpbpf-5-0/notes"), "kept").unwrap();
        drop(bind("warpbpf-cli-6", "control"));
        left_folders(&base);
        let mut left: Vec<String> = std::fs::read_dir(&base)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(
            left,
            [
                "warpbpf-2-0",
                "warpbpf-3-0",
                "warpbpf-4-0",
                "warpbpf-5-0",
                "warpbpf-cli-6"
            ]
        );
        assert!(base.join("warpbpf-3-0/maps").exists());
        assert!(base.join("warpbpf-5-0/notes").exists());
        drop((lives, other));
        let old = std::fs::File::open(base.join("warpbpf-4-0")).unwrap();
        old.set_modified(std::time::SystemTime::now() - 2 * NEW)
            .unwrap();
        left_folders(&base);
        assert!(!base.join("warpbpf-4-0").exists() && !base.join("warpbpf-2-0").exists());
        std::fs::remove_dir_all(&base).unwrap();
    }
}

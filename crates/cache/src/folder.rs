//! A folder that only we, or root, can write to. It is opened once and used by its descriptor, so
//! that what was checked stays what is used, whatever happens to its name.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW, flock,
};
use rustix::io::Errno;
use warpbpf_descriptor::OwnDescriptor;

/// Larger files are no entries.
const MOST_BYTES: u64 = 1 << 30;
/// What names of files begin with that are being written.
const NEW: &str = ".new-";

/// Why a folder cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum FolderError {
    #[error("cannot make the folder for compiled code, `{}`: {errno}", path.display())]
    Make { path: PathBuf, errno: Errno },
    #[error("cannot open the folder for compiled code, `{}`: {errno}", path.display())]
    Open { path: PathBuf, errno: Errno },
    #[error("the folder for compiled code, `{}`, is not used: {why}", path.display())]
    Unsafe { path: PathBuf, why: Unsafe },
}

/// Why a folder or file is not trusted: what is in it would be run with the rights of the
/// application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum Unsafe {
    #[error("it belongs to user {owner}, and this is user {user}")]
    Owner { owner: u32, user: u32 },
    #[error("others may write to it (mode {mode:03o}); `chmod go-w` changes that")]
    Writable { mode: u32 },
    #[error("it is no plain file")]
    Kind,
    #[error("it has {bytes} bytes, more than any entry")]
    Size { bytes: u64 },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    fd: OwnDescriptor,
    user: u32,
}

/// A file of the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// When it was last used: seconds and nanoseconds.
    pub(crate) used: (i64, i64),
}

impl Listed {
    /// It is, or was, being written.
    pub(crate) fn is_new(&self) -> bool {
        self.name.starts_with(NEW)
    }
}

/// What a file holds, or why it is not looked at.
#[derive(Debug)]
pub(crate) enum Content {
    Bytes(Vec<u8>),
    Unsafe(Unsafe),
}

/// Nobody but this user and root can have put there, or changed, what is open.
pub fn is_trusted(file: impl AsFd) -> bool {
    let user = rustix::process::geteuid().as_raw();
    rustix::fs::fstat(file).is_ok_and(|there| owned_by(&there, user).is_ok())
}

fn owned_by(stat: &Stat, user: u32) -> Result<(), Unsafe> {
    let owner = stat.st_uid;
    if owner != user && owner != 0 {
        return Err(Unsafe::Owner { owner, user });
    }
    let mode = stat.st_mode & 0o777;
    if mode & 0o022 != 0 {
        return Err(Unsafe::Writable { mode });
    }
    Ok(())
}

impl Folder {
    /// Opens the folder, made if it is not there.
    pub(crate) fn open(path: &Path, make: bool) -> Result<Folder, FolderError> {
        let user = rustix::process::geteuid().as_raw();
        Folder::open_as(path, make, user)
    }

    fn open_as(path: &Path, make: bool, user: u32) -> Result<Folder, FolderError> {
        let named = |errno| FolderError::Open {
            path: path.to_owned(),
            errno,
        };
        if make {
            let made = std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(path);
            made.map_err(|error| FolderError::Make {
                path: path.to_owned(),
                errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
            })?;
        }
        warpbpf_faults::check("cache/open", || named(Errno::ACCESS))?;
        // A folder may be reached by a link: whose it is counts.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(named)?;
        let fd = OwnDescriptor::new(fd);
        let stat = fd.stat().map_err(named)?;
        owned_by(&stat, user).map_err(|why| FolderError::Unsafe {
            path: path.to_owned(),
            why,
        })?;
        Ok(Folder {
            path: path.to_owned(),
            fd,
            user,
        })
    }

    /// The folder, if the descriptor is still its own.
    fn here(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.fd.here()
    }

    /// Opens what has this name in the folder.
    fn open_in(&self, name: &str, flags: OFlags, mode: Mode) -> Result<OwnDescriptor, Errno> {
        let fd = rustix::fs::openat(self.here()?, name, flags | OFlags::CLOEXEC, mode)?;
        Ok(OwnDescriptor::new(fd))
    }

    /// All of a file; `None` if there is none.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Content>, Errno> {
        warpbpf_faults::check("cache/read", || Errno::IO)?;
        // A pipe must not hold us up, and no link lead us elsewhere.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = match self.open_in(name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Ok(Some(Content::Unsafe(Unsafe::Kind))),
            Err(errno) => return Err(errno),
        };
        let stat = file.stat()?;
        let bytes = stat.st_size as u64;
        let trusted = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => owned_by(&stat, self.user),
            _ => Err(Unsafe::Kind),
        };
        let trusted = trusted.and(match bytes > MOST_BYTES {
            true => Err(Unsafe::Size { bytes }),
            false => Ok(()),
        });
        if let Err(why) = trusted {
            return Ok(Some(Content::Unsafe(why)));
        }
        let mut content = Vec::with_capacity(bytes as usize + 1);
        let mut file = file.take(MOST_BYTES);
        file.read_to_end(&mut content).map_err(errno_of)?;
        Ok(Some(Content::Bytes(content)))
    }

    /// Says that a file was used now. One of root's cannot be told.
    pub(crate) fn touch(&self, name: &str) {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        if let Ok(folder) = self.here() {
            let _ = rustix::fs::utimensat(folder, name, &times, AtFlags::SYMLINK_NOFOLLOW);
        }
    }

    /// Writes a file that is whole as soon as it is there.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Errno> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        // Processes in several containers may have one number and one folder.
        let (new, mut file) = loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let new = format!("{NEW}{}-{number}", std::process::id());
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            match self.open_in(&new, flags, Mode::RUSR | Mode::WUSR) {
                Err(Errno::EXIST) => {}
                made => break (new, made?),
            }
        };
        let written = warpbpf_faults::check("cache/write", || Errno::NOSPC);
        let written = written.and_then(|()| file.write_all(bytes).map_err(errno_of));
        let placed = written.and_then(|()| {
            warpbpf_faults::check("cache/rename", || Errno::IO)?;
            self.here()
                .and_then(|folder| rustix::fs::renameat(folder, &new, folder, name))
        });
        if placed.is_err() {
            self.remove(&new);
        }
        placed
    }

    /// Takes a file away. True if this did.
    pub(crate) fn remove(&self, name: &str) -> bool {
        let folder = self.here();
        folder.is_ok_and(|folder| rustix::fs::unlinkat(folder, name, AtFlags::empty()).is_ok())
    }

    /// Its plain files.
    pub(crate) fn list(&self) -> Result<Vec<Listed>, Errno> {
        warpbpf_faults::check("cache/list", || Errno::IO)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        // A descriptor has one place in the list, and several threads may read it.
        let folder = self.open_in(".", flags, Mode::empty())?;
        let mut all = Vec::new();
        for name in folder.names().map_err(errno_of)? {
            let Some(name) = name.to_str() else {
                continue;
            };
            // It may be gone by now.
            let stat = rustix::fs::statat(self.here()?, name, AtFlags::SYMLINK_NOFOLLOW);
            let Some(stat) = stat
                .ok()
                .filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
            else {
                continue;
            };
            all.push(Listed {
                name: name.to_owned(),
                bytes: stat.st_size as u64,
                used: (stat.st_mtime, stat.st_mtime_nsec as i64),
            });
        }
        Ok(all)
    }

    /// A lock that is held until it is dropped; `None` if somebody else has it.
    pub(crate) fn try_lock(&self) -> Result<Option<Lock>, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW;
        let file = self.open_in(".lock", flags, Mode::RUSR | Mode::WUSR)?;
        match flock(file.here()?, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

fn errno_of(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// The right to make room. A child that was forked meanwhile has the descriptor too, so closing it
/// would not be enough.
#[derive(Debug)]
pub(crate) struct Lock(OwnDescriptor);

impl Drop for Lock {
    fn drop(&mut self) {
        // It goes with the process at the latest.
        let _ = self
            .0
            .here()
            .map(|file| flock(file, FlockOperation::Unlock));
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::store::tests::Scratch;

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Whoever closes all descriptors may have another file at the number: it is not the folder.
    #[test]
    fn a_number_that_is_anothers_is_no_folder() {
        let (scratch, other) = (Scratch::new("closed"), Scratch::new("other"));
        let folder = Folder::open(&scratch.0, true).unwrap();
        folder.write("a", b"1").unwrap();
        let another = Folder::open(&other.0, true).unwrap();
        let number = folder.here().unwrap().as_raw_fd();
        // SAFETY: the number is the folder's, which it must not touch behind this.
        let mut taken = unsafe { OwnedFd::from_raw_fd(number) };
        rustix::io::dup2(another.here().unwrap(), &mut taken).unwrap();
        assert_eq!(folder.write("b", b"2"), Err(Errno::BADF));
        assert!(!folder.remove("a"));
        drop(folder);
        assert!(rustix::fs::fstat(&taken).is_ok());
        let names = |of: &Scratch| std::fs::read_dir(&of.0).unwrap().count();
        assert_eq!((names(&scratch), names(&other)), (1, 0));
    }

    #[test]
    fn a_folder_is_made_for_us_alone() {
        let scratch = Scratch::new("folder-made");
        let path = scratch.0.join("a/b");
        let folder = Folder::open(&path, true).unwrap();
        let made = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!((made & 0o777, &folder.path), (0o700, &path));
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let scratch = Scratch::new("folder-open");
        mode(&scratch.0, 0o770);
        let error = Folder::open(&scratch.0, true).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "the folder for compiled code, `{}`, is not used: others may write to it (mode 770); `chmod go-w` changes that",
                scratch.0.display()
            )
        );
        mode(&scratch.0, 0o755);
        let user = rustix::process::geteuid().as_raw();
        // Root's would be trusted.
        if user != 0 {
            let other = Folder::open_as(&scratch.0, true, user + 1).unwrap_err();
            assert!(matches!(
                other,
                FolderError::Unsafe {
                    why: Unsafe::Owner { .. },
                    ..
                }
            ));
        }
        let missing = Folder::open(&scratch.0.join("none"), false).unwrap_err();
        assert!(matches!(
            missing,
            FolderError::Open {
                errno: Errno::NOENT,
                ..
            }
        ));
        let file = scratch.0.join("file");
        std::fs::write(&file, "x").unwrap();
        let error = Folder::open(&file.join("below"), true).unwrap_err();
        assert!(
            matches!(
                error,
                FolderError::Make {
                    errno: Errno::NOTDIR,
                    ..
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn only_plain_files_of_ours_are_read() {
        let scratch = Scratch::new("folder-files");
        let folder = Folder::open(&scratch.0, true).unwrap();
        let read = |name: &str| folder.read(name).unwrap();
        let why = |name: &str| match read(name) {
            Some(Content::Unsafe(why)) => why,
            other => panic!("{name}: {other:?}"),
        };
        folder.write("ours", b"bytes").unwrap();
        assert!(matches!(read("ours"), Some(Content::Bytes(bytes)) if bytes == b"bytes"));
        assert!(read("none").is_none());
        symlink(scratch.0.join("ours"), scratch.0.join("link")).unwrap();
        assert_eq!(why("link"), Unsafe::Kind);
        std::fs::create_dir(scratch.0.join("folder")).unwrap();
        assert_eq!(why("folder"), Unsafe::Kind);
        let pipe = scratch.0.join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!(why("pipe"), Unsafe::Kind);
        mode(&scratch.0.join("ours"), 0o622);
        assert_eq!(why("ours"), Unsafe::Writable { mode: 0o622 });
        mode(&scratch.0.join("ours"), 0o600);
        let stranger = Folder {
            user: folder.user + 1,
            path: folder.path.clone(),
            fd: folder.here().unwrap().try_clone_to_owned().unwrap().into(),
        };
        if folder.user == 0 {
            // Only root can give files away, and a file of root's is trusted.
            std::os::unix::fs::chown(scratch.0.join("ours"), Some(12_345), None).unwrap();
            let owner = Unsafe::Owner {
                owner: 12_345,
                user: 0,
            };
            assert_eq!(why("ours"), owner);
        } else {
            let refused = stranger.read("ours").unwrap();
            let owner = Unsafe::Owner {
                owner: folder.user,
                user: folder.user + 1,
            };
            assert!(matches!(refused, Some(Content::Unsafe(why)) if why == owner));
        }
    }

    #[test]
    fn a_lock_is_held_by_one() {
        let scratch = Scratch::new("folder-lock");
        let folder = Folder::open(&scratch.0, true).unwrap();
        let held = folder.try_lock().unwrap();
        assert!(held.is_some());
        assert!(folder.try_lock().unwrap().is_none());
        drop(held);
        assert!(folder.try_lock().unwrap().is_some());
    }
}

//! Files that are written when the application has ended, whose place is checked before it starts:
//! by then it is too late to choose another one.
//!
//! A file is written beside the one that is there, made durable, and renamed, so that a full disk
//! or a kill leaves the old one as it was.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, FallocateFlags};

use crate::term::error::CliError;
use crate::term::output;
use crate::term::signals::Hurry;

/// Between two looks whether somebody reads.
const LOOK: Duration = Duration::from_millis(10);

/// Where something will be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// As the user has written it.
    path: PathBuf,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    StandardOutput,
    /// A device, a FIFO or a socket's file.
    Stream,
    /// A file that cannot be replaced: it has several names, or its folder takes no other file.
    InPlace,
    /// A file, behind all links, that is replaced.
    Replaced(PathBuf),
}

impl Destination {
    /// Looks whether the file can be written. `-` is standard output.
    ///
    /// # Errors
    /// It cannot: which one, and why.
    pub fn check(path: &Path) -> Result<Destination, CliError> {
        let failed = |source: io::Error| CliError::Write {
            path: path.display().to_string(),
            source,
        };
        let kind = match path.as_os_str() == "-" {
            true => Kind::StandardOutput,
            false => kind(path).map_err(failed)?,
        };
        Ok(Destination {
            path: path.to_owned(),
            kind,
        })
    }

    /// It is standard output.
    pub fn is_standard_output(&self) -> bool {
        self.kind == Kind::StandardOutput
    }

    /// Both are one regular file.
    pub fn is_same(&self, other: &Destination) -> bool {
        match (&self.kind, &other.kind) {
            (Kind::Replaced(one), Kind::Replaced(two)) => one == two,
            (Kind::InPlace, Kind::InPlace) => self.path == other.path,
            _ => false,
        }
    }

    /// The file to replace, if one with contents is there; `None` for what is no regular file.
    pub fn regular(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Replaced(path) => Some(path),
            Kind::StandardOutput | Kind::Stream | Kind::InPlace => None,
        }
    }

    /// As the user has written it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the whole contents. What was there stays if this fails.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, bytes: &[u8]) -> Result<(), CliError> {
        let written = match &self.kind {
            Kind::StandardOutput => output::standard_output(bytes),
            Kind::Stream => patiently(&self.path, bytes),
            Kind::InPlace => in_place(&self.path, bytes),
            Kind::Replaced(path) => replace(path, bytes),
        };
        written.map_err(|source| CliError::Write {
            path: self.path.display().to_string(),
            source,
        })
    }

    /// Opens what is written as it comes: standard output, or a device or FIFO.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn stream(&self) -> io::Result<File> {
        match &self.kind {
            Kind::StandardOutput => Ok(io::stdout().as_fd().try_clone_to_owned()?.into()),
            Kind::Stream => stream(&self.path),
            Kind::InPlace => OpenOptions::new()
                .write(true)
                .truncate(true)
                .open(&self.path),
            Kind::Replaced(path) => File::create(path),
        }
    }
}

fn stream(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(path)
}

/// Writes to a device or FIFO, which may have nobody who reads: that is waited for as long as
/// nobody wants this command to end.
fn patiently(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.append(true).custom_flags(libc::O_NONBLOCK);
    let hurry = Hurry::watch();
    let is_fifo = std::fs::metadata(path)?.file_type().is_fifo();
    let file = loop {
        match options.open(path) {
            Err(error) if is_fifo && error.raw_os_error() == Some(libc::ENXIO) => {
                wait_for_reader(&hurry)?;
            }
            opened => break opened?,
        }
    };
    let mut left = bytes;
    while !left.is_empty() {
        match rustix::io::write(&file, left) {
            Ok(count) => left = &left[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => wait_for_reader(&hurry)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn wait_for_reader(hurry: &Hurry) -> io::Result<()> {
    if hurry.came() {
        return Err(io::Error::other("nobody reads it"));
    }
    std::thread::sleep(LOOK);
    Ok(())
}

fn kind(path: &Path) -> io::Result<Kind> {
    let there = match std::fs::metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let path = behind_links(path)?;
            try_beside(&path)?;
            return Ok(Kind::Replaced(path));
        }
        Err(error) => return Err(error),
    };
    let kind = there.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    rustix::fs::access(path, Access::WRITE_OK)?;
    if !kind.is_file() {
        // A device says by itself whether it is there; a FIFO would wait for its reader.
        if kind.is_char_device() || kind.is_block_device() {
            stream(path)?;
        }
        return Ok(Kind::Stream);
    }
    let target = std::fs::canonicalize(path)?;
    // Another user's file, or one of several names, would be another file afterwards.
    let own = there.uid() == rustix::process::geteuid().as_raw();
    match own && there.nlink() == 1 && try_beside(&target).is_ok() {
        true => Ok(Kind::Replaced(target)),
        false => {
            OpenOptions::new().write(true).open(path)?;
            Ok(Kind::InPlace)
        }
    }
}

/// Where a file will be that is not there yet, though a link may be.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = std::path::absolute(path)?;
    // As many as Linux follows.
    for _ in 0..40 {
        let Ok(target) = std::fs::read_link(&path) else {
            return Ok(path);
        };
        let folder = path.parent().unwrap_or(Path::new("/"));
        path = folder.join(target);
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// The file that is written first.
fn beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    // A file's name has a longest length.
    let mut name = std::os::unix::ffi::OsStringExt::into_vec(name);
    name.truncate(200);
    name.extend_from_slice(format!(".warpbpf-{}", std::process::id()).as_bytes());
    let name: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(name);
    path.with_file_name(name)
}

fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let beside = beside(path);
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o666)
        .open(&beside)?;
    Ok((beside, file))
}

/// The folder takes files.
fn try_beside(path: &Path) -> io::Result<()> {
    if path.file_name().is_none() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let (made, _) = create_beside(path)?;
    std::fs::remove_file(made)
}

/// Writes a new file and renames it.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (made, mut file) = create_beside(path)?;
    let mut written = || {
        if let Ok(there) = std::fs::metadata(path) {
            file.set_permissions(std::fs::Permissions::from_mode(there.mode() & 0o7777))?;
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&made, path)
    };
    written().inspect_err(|_| {
        // What was begun is of no use.
        let _ = std::fs::remove_file(&made);
    })
}

/// Writes over a file, once there is room for all of it.
fn in_place(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    let (old, new) = (file.metadata()?.len(), bytes.len() as u64);
    if new > old {
        let room = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, new);
        match room {
            // Not every file system can tell.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
            Err(error) => {
                let _ = file.set_len(old);
                return Err(error.into());
            }
        }
    }
    file.write_all(bytes)?;
    file.set_len(new)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("warpbpf-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn refused(path: &Path) -> String {
        Destination::check(path).unwrap_err().to_string()
    }

    #[test]
    fn a_place_is_checked_and_nothing_is_changed_there() {
        let folder = folder("checked");
        let file = folder.join("report.json");
        Destination::check(&file).unwrap();
        assert_eq!(names(&folder), Vec::<String>::new());
        std::fs::write(&file, "old").unwrap();
        Destination::check(&file).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"old");
        assert_eq!(names(&folder), ["report.json"]);
        let none = folder.join("none/report.json");
        assert_eq!(
            refused(&none),
            format!(
                "cannot write `{}`: No such file or directory (os error 2)",
                none.display()
            )
        );
        assert_eq!(
            refused(&folder),
            format!("cannot write `{}`: is a directory", folder.display())
        );
        assert!(
            Destination::check(Path::new("-"))
                .unwrap()
                .is_standard_output()
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_is_replaced_behind_its_links_and_keeps_its_mode() {
        let folder = folder("replaced");
        let (file, link) = (folder.join("file"), folder.join("link"));
        std::os::unix::fs::symlink("file", &link).unwrap();
        // The link leads nowhere yet.
        Destination::check(&link).unwrap().write(b"one").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"one");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        let before = std::fs::metadata(&file).unwrap().ino();
        Destination::check(&link).unwrap().write(b"two").unwrap();
        let now = std::fs::metadata(&file).unwrap();
        assert_eq!(std::fs::read(&link).unwrap(), b"two");
        assert_ne!(now.ino(), before, "it is a new file");
        assert_eq!(now.mode() & 0o777, 0o640);
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(names(&folder), ["file", "link"]);
        // One with two names stays one file.
        let twin = folder.join("twin");
        std::fs::hard_link(&file, &twin).unwrap();
        Destination::check(&file).unwrap().write(b"3").unwrap();
        assert_eq!(std::fs::read(&twin).unwrap(), b"3");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_write_that_fails_leaves_what_was_there() {
        let folder = folder("fails");
        let file = folder.join("file");
        std::fs::write(&file, "old").unwrap();
        let destination = Destination::check(&file).unwrap();
        // A folder is where the new file would be.
        let beside = beside(&std::fs::canonicalize(&file).unwrap());
        std::fs::create_dir(&beside).unwrap();
        destination.write(b"new").unwrap_err();
        assert_eq!(std::fs::read(&file).unwrap(), b"old");
        let full = Destination::check(Path::new("/dev/full")).unwrap();
        let error = full.write(b"new").unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot write `/dev/full`: No space left on device (os error 28)"
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn one_file_by_two_names_is_known() {
        let folder = folder("same");
        std::fs::create_dir(folder.join("a")).unwrap();
        let check = |name: &str| Destination::check(&folder.join(name)).unwrap();
        std::fs::write(folder.join("f"), "").unwrap();
        assert!(check("f").is_same(&check("a/../f")));
        assert!(!check("f").is_same(&check("g")));
        assert!(!check("f").is_same(&Destination::check(Path::new("/dev/null")).unwrap()));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_fifo_is_written_when_somebody_reads() {
        use std::io::Read as _;
        let folder = folder("fifo");
        let path = folder.join("fifo");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        // More than is in one at once.
        let text = "report ".repeat(100_000);
        let destination = Destination::check(&path).unwrap();
        let bytes = text.clone();
        let writer = std::thread::spawn(move || destination.write(bytes.as_bytes()));
        let mut read = String::new();
        File::open(&path)
            .unwrap()
            .read_to_string(&mut read)
            .unwrap();
        writer.join().unwrap().unwrap();
        assert_eq!(read, text);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

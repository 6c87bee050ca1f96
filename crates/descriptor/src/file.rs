//! Files by names that are not ours to trust: of whatever is mapped, or of what another process
//! says. What has such a name may be a device, which does something when it is opened, or a FIFO,
//! which lets its reader wait.

use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::own::OwnDescriptor;

fn opened(path: &Path, flags: OFlags) -> Result<OwnDescriptor, Errno> {
    let fd = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())?;
    Ok(OwnDescriptor::new(fd))
}

fn is_regular(about: &Stat) -> bool {
    FileType::from_raw_mode(about.st_mode) == FileType::RegularFile
}

/// Opens a regular file to be read. Nothing else is opened, and nothing is waited for.
///
/// # Errors
/// It cannot be opened, or is no regular file ([`io::ErrorKind::InvalidInput`]).
pub fn open(path: impl AsRef<Path>) -> io::Result<OwnDescriptor> {
    let path = path.as_ref();
    let refused = || io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
    // This opens nothing, so that nothing happens.
    let there = opened(path, OFlags::PATH)?;
    let about = there.stat()?;
    if !is_regular(&about) {
        return Err(refused());
    }
    let to_read = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    // The very one that was looked at, in this thread's table; by its name where there is no /proc.
    let same = format!("/proc/thread-self/fd/{}", there.here()?.as_raw_fd());
    let file = match opened(Path::new(&same), to_read) {
        Err(Errno::NOENT) => opened(path, to_read)?,
        same => same?,
    };
    let now = file.stat()?;
    match is_regular(&now) && (now.st_dev, now.st_ino) == (about.st_dev, about.st_ino) {
        true => Ok(file),
        false => Err(refused()),
    }
}

/// Opens a folder, to be listed and to open what is in it.
///
/// # Errors
/// The system's; it is no folder.
pub fn open_folder(path: impl AsRef<Path>) -> io::Result<OwnDescriptor> {
    Ok(opened(path.as_ref(), OFlags::RDONLY | OFlags::DIRECTORY)?)
}

/// All that is in a file of the system's, such as one in `/proc`.
///
/// # Errors
/// The system's; `EBADF` if the process has closed the descriptor meanwhile.
pub fn read_file(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    opened(path.as_ref(), OFlags::RDONLY)?.read_to_end(&mut all)?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_nobody_waits() {
        let folder = std::env::temp_dir().join(format!("warpbpf-regular-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("file");
        std::fs::write(&file, "text").unwrap();
        let mut text = String::new();
        open(&file).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        let fifo = folder.join("fifo");
        let (kind, mode) = (FileType::Fifo, Mode::RUSR | Mode::WUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
        let link = folder.join("link");
        std::os::unix::fs::symlink(&fifo, &link).unwrap();
        for other in [&fifo, &link, &folder, &"/dev/null".into()] {
            let error = open(other).unwrap_err().to_string();
            assert_eq!(error, "it is no regular file", "{}", other.display());
        }
        assert!(open(folder.join("none")).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_is_read_whole() {
        assert_eq!(
            read_file("/proc/self/cmdline").unwrap(),
            std::fs::read("/proc/self/cmdline").unwrap()
        );
        let none = read_file("/nowhere").unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn only_folders_are_opened_as_such() {
        assert!(open_folder("/proc/self").is_ok());
        let file = open_folder("/proc/self/cmdline").unwrap_err();
        assert_eq!(file.kind(), io::ErrorKind::NotADirectory);
    }
}

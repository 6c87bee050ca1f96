//! Files by names that are not ours to trust: of whatever is mapped, or of what another process
//! says. What has such a name may be a device, which does something when it is opened, or a FIFO,
//! which lets its reader wait.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Opens a regular file to be read. Nothing else is opened, and nothing is waited for.
///
/// # Errors
/// It cannot be opened, or is no regular file ([`io::ErrorKind::InvalidInput`]).
pub fn open(path: &Path) -> io::Result<File> {
    let refused = || io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
    // This opens nothing, so that nothing happens.
    let mut only_path = OpenOptions::new();
    let there = only_path.read(true).custom_flags(libc::O_PATH).open(path)?;
    let about = there.metadata()?;
    if !about.is_file() {
        return Err(refused());
    }
    let mut to_read = OpenOptions::new();
    to_read.read(true);
    to_read.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    // The very one that was looked at, in this thread's table; by its name where there is no /proc.
    let same = to_read.open(format!("/proc/thread-self/fd/{}", there.as_raw_fd()));
    let file = match same {
        Err(error) if error.kind() == io::ErrorKind::NotFound => to_read.open(path)?,
        same => same?,
    };
    let opened = file.metadata()?;
    match opened.is_file() && (opened.dev(), opened.ino()) == (about.dev(), about.ino()) {
        true => Ok(file),
        false => Err(refused()),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::io::Read as _;
    use std::os::unix::ffi::OsStrExt as _;

    use super::open;

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
        let name = CString::new(fifo.as_os_str().as_bytes()).unwrap();
        // SAFETY: a NUL-terminated name.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let link = folder.join("link");
        std::os::unix::fs::symlink(&fifo, &link).unwrap();
        for other in [&fifo, &link, &folder, &"/dev/null".into()] {
            let error = open(other).unwrap_err().to_string();
            assert_eq!(error, "it is no regular file", "{}", other.display());
        }
        assert!(open(&folder.join("none")).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

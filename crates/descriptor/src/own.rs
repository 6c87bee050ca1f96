//! Descriptors in a process that may close every descriptor which it does not know, and whose own
//! files get the numbers then. So each is compared with what was opened, by device and inode,
//! before it is read, written, sent or closed.
//!
//! Between the comparison and what follows lie moments in which another thread may still close the
//! number; only a table of descriptors of our own would rule that out, and NVIDIA's driver cannot
//! be called with one (docs/internals/attach.md).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{RawDir, SeekFrom, Stat};
use rustix::io::Errno;

/// What a descriptor leads to, by device and inode, if it could be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity(Option<(u64, u64)>);

impl Identity {
    /// What tells a socket, a pipe and a file in memory from all others.
    pub fn of(fd: BorrowedFd<'_>) -> Identity {
        let there = rustix::fs::fstat(fd).ok();
        Identity(there.map(|there| (there.st_dev, there.st_ino)))
    }

    /// This number is still that descriptor.
    pub fn is(self, fd: BorrowedFd<'_>) -> bool {
        self.0.is_some() && Identity::of(fd) == self
    }

    /// Closes this number if it is still that descriptor. Nothing but system calls: for a child
    /// that was just forked, too. An `OwnedFd` would end the process where the number is closed.
    pub fn close(self, number: RawFd) {
        // SAFETY: it is only asked what it is; of one that is not open nothing is said.
        let there = unsafe { BorrowedFd::borrow_raw(number) };
        if self.is(there) {
            // SAFETY: whoever owns the descriptor has ended, or does not exist in this process.
            unsafe { rustix::io::close(number) };
        }
    }
}

/// A descriptor of ours, which is neither used nor closed where its number stands for something
/// else.
#[derive(Debug)]
pub struct OwnDescriptor {
    fd: Option<OwnedFd>,
    identity: Identity,
}

impl OwnDescriptor {
    /// Takes what was made just now.
    pub fn new(fd: OwnedFd) -> OwnDescriptor {
        OwnDescriptor {
            identity: Identity::of(fd.as_fd()),
            fd: Some(fd),
        }
    }

    /// The descriptor, if it is still the one that was made.
    pub fn get(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fd.as_ref()?.as_fd();
        self.identity.is(fd).then_some(fd)
    }

    /// The descriptor to work with.
    ///
    /// # Errors
    /// `EBADF`: the process has closed it meanwhile.
    pub fn here(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.get().ok_or(Errno::BADF)
    }

    /// What the file system says of it.
    ///
    /// # Errors
    /// The system's.
    pub fn stat(&self) -> Result<Stat, Errno> {
        rustix::fs::fstat(self.here()?)
    }

    /// Fills `part` with what is at `offset`.
    ///
    /// # Errors
    /// The system's; there is not so much.
    pub fn read_exact_at(&self, mut part: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !part.is_empty() {
            match rustix::io::pread(self.here()?, &mut *part, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    part = &mut part[count..];
                    offset += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Writes all of `part` at `offset`.
    ///
    /// # Errors
    /// The system's.
    pub fn write_all_at(&self, mut part: &[u8], mut offset: u64) -> io::Result<()> {
        while !part.is_empty() {
            match rustix::io::pwrite(self.here()?, part, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    part = &part[count..];
                    offset += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// The names in a folder, but `.` and `..`, in the order that the file system gives.
    ///
    /// # Errors
    /// The system's; it is no folder.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut entries = RawDir::new(self.here()?, buffer.spare_capacity_mut());
        let mut names = Vec::new();
        loop {
            // The next one comes from the system.
            if entries.is_buffer_empty() {
                self.here()?;
            }
            let Some(entry) = entries.next() else {
                return Ok(names);
            };
            let name = entry?.file_name().to_bytes().to_owned();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(&name).to_owned());
            }
        }
    }

    /// The descriptor by its number alone, to be given away at once.
    ///
    /// # Errors
    /// `EBADF`: the process has closed it meanwhile.
    pub fn into_fd(mut self) -> Result<OwnedFd, Errno> {
        self.here()?;
        self.fd.take().ok_or(Errno::BADF)
    }
}

impl<T: Into<OwnedFd>> From<T> for OwnDescriptor {
    fn from(made: T) -> OwnDescriptor {
        OwnDescriptor::new(made.into())
    }
}

impl io::Read for OwnDescriptor {
    fn read(&mut self, part: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.here()?, part)?)
    }
}

impl io::Write for OwnDescriptor {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.here()?, part)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Seek for OwnDescriptor {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let to = match to {
            io::SeekFrom::Start(at) => SeekFrom::Start(at),
            io::SeekFrom::End(by) => SeekFrom::End(by),
            io::SeekFrom::Current(by) => SeekFrom::Current(by),
        };
        Ok(rustix::fs::seek(self.here()?, to)?)
    }
}

impl Drop for OwnDescriptor {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            self.identity.close(fd.into_raw_fd());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Seek as _, Write as _};
    use std::os::fd::{AsRawFd as _, FromRawFd as _};
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn what_the_process_has_closed_is_neither_used_nor_closed_again() {
        let (_read, write) = UnixStream::pair().unwrap();
        let number = write.as_raw_fd();
        let own = OwnDescriptor::new(write.into());
        assert!(own.get().is_some());
        let other = File::open("/dev/null").unwrap();
        // The process has a file of its own at the number now.
        // SAFETY: the number is the socket's, which `own` must not touch behind this.
        let mut taken = unsafe { OwnedFd::from_raw_fd(number) };
        rustix::io::dup2(&other, &mut taken).unwrap();
        assert!(own.get().is_none());
        drop(own);
        assert_eq!(Identity::of(taken.as_fd()), Identity::of(other.as_fd()));
    }

    #[test]
    fn what_is_closed_already_ends_nothing() {
        let (read, write) = UnixStream::pair().unwrap();
        let own = OwnDescriptor::new(write.into());
        let number = own.get().unwrap().as_raw_fd();
        // SAFETY: as a process does that closes what it does not know.
        unsafe { rustix::io::close(number) };
        drop(own);
        drop(read);
    }

    #[test]
    fn what_is_ours_is_closed() {
        let (read, write) = UnixStream::pair().unwrap();
        drop(OwnDescriptor::new(write.into()));
        // The end of the stream: nobody holds its other side any more.
        assert_eq!(rustix::io::read(&read, &mut [0; 8]), Ok(0));
    }

    #[test]
    fn what_the_process_has_closed_is_neither_read_nor_written() {
        let folder = scratch("closed");
        let path = folder.join("theirs");
        std::fs::write(&path, "theirs").unwrap();
        let (_read, write) = UnixStream::pair().unwrap();
        let mut own = OwnDescriptor::new(write.into());
        let number = own.get().unwrap().as_raw_fd();
        let other = File::options().read(true).write(true).open(&path).unwrap();
        // SAFETY: the number is the socket's, which `own` must not touch behind this.
        let mut taken = unsafe { OwnedFd::from_raw_fd(number) };
        rustix::io::dup2(&other, &mut taken).unwrap();
        let closed = Some(Errno::BADF.raw_os_error());
        let errors = [
            own.read(&mut [0; 8]).unwrap_err(),
            own.write(b"ours").unwrap_err(),
            own.seek(io::SeekFrom::End(0)).unwrap_err(),
            own.read_exact_at(&mut [0; 1], 0).unwrap_err(),
            own.write_all_at(b"ours", 0).unwrap_err(),
            own.names().unwrap_err(),
            own.stat().unwrap_err().into(),
        ];
        for error in errors {
            assert_eq!(error.raw_os_error(), closed);
        }
        drop(own);
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
        assert_eq!(rustix::fs::tell(&other), Ok(0));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn files_are_read_and_written_at_places() {
        let folder = scratch("places");
        let path = folder.join("file");
        std::fs::write(&path, "0123456789").unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut own = OwnDescriptor::new(file.into());
        own.write_all_at(b"abc", 4).unwrap();
        let mut part = [0; 4];
        own.read_exact_at(&mut part, 3).unwrap();
        assert_eq!(&part, b"3abc");
        let past = own.read_exact_at(&mut part, 8).unwrap_err();
        assert_eq!(past.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(own.seek(io::SeekFrom::End(-2)).unwrap(), 8);
        let mut rest = String::new();
        own.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "89");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn all_names_of_a_folder_are_told() {
        let folder = scratch("names");
        // More than one answer of the system holds.
        let mut made: Vec<OsString> = (0..1000)
            .map(|number| format!("{number}{}", "x".repeat(60)).into())
            .collect();
        for name in &made {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let own = OwnDescriptor::new(File::open(&folder).unwrap().into());
        let mut names = own.names().unwrap();
        names.sort();
        made.sort();
        assert_eq!(names, made);
        let file = folder.join(&made[0]);
        let file = OwnDescriptor::new(File::open(file).unwrap().into());
        let none = file.names().unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotADirectory);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    fn scratch(name: &str) -> PathBuf {
        let name = format!("warpbpf-own-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }
}

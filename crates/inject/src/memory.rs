//! The memory of a process, through the kernel: what may not be written there can be written from
//! here, as for a debugger.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::error::InjectError;
use crate::proc;

/// Memory that can be read: of a process, or of a test.
pub trait Bytes: std::fmt::Debug {
    /// Fills `into` with what lies at `at`.
    ///
    /// # Errors
    /// It is not mapped, or the process is gone.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), InjectError>;

    /// As much of `bytes` as is mapped from `at` on.
    fn read_some(&self, at: u64, bytes: usize) -> Vec<u8>;

    /// A number.
    ///
    /// # Errors
    /// As [`Bytes::read`].
    fn word(&self, at: u64) -> Result<u64, InjectError> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// A small one.
    ///
    /// # Errors
    /// As [`Bytes::read`].
    fn half(&self, at: u64) -> Result<u32, InjectError> {
        let mut bytes = [0; 4];
        self.read(at, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Text up to its NUL, or as far as `most` bytes.
    fn text(&self, at: u64, most: usize) -> String {
        let bytes = self.read_some(at, most);
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

/// See the module.
#[derive(Debug)]
pub struct Memory {
    file: File,
    pid: u32,
}

impl Memory {
    /// Opens it.
    ///
    /// # Errors
    /// [`InjectError::NotPermitted`].
    pub fn open(pid: u32) -> Result<Memory, InjectError> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true);
        let file = file.open(proc::folder(pid).join("mem"));
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => InjectError::NotPermitted {
                pid,
                why: error.to_string(),
            },
            _ => InjectError::os(pid, "opening the memory", error),
        })?;
        Ok(Memory { file, pid })
    }

    /// Writes, through whatever protection.
    ///
    /// # Errors
    /// As [`Bytes::read`].
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), InjectError> {
        self.file
            .write_all_at(bytes, at)
            .map_err(|e| self.failed("writing the memory", at, e))
    }

    fn failed(&self, call: &'static str, at: u64, error: io::Error) -> InjectError {
        // The memory of a process that has ended is empty.
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::WriteZero => {
                InjectError::Ended { pid: self.pid }
            }
            _ => {
                let error = io::Error::new(error.kind(), format!("{error} at {at:#x}"));
                InjectError::os(self.pid, call, error)
            }
        }
    }
}

impl Bytes for Memory {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), InjectError> {
        self.file
            .read_exact_at(into, at)
            .map_err(|e| self.failed("reading the memory", at, e))
    }

    fn read_some(&self, at: u64, bytes: usize) -> Vec<u8> {
        let mut into = vec![0; bytes];
        let mut got = 0;
        while got < bytes {
            let Some(place) = at.checked_add(got as u64) else {
                break;
            };
            match self.file.read_at(&mut into[got..], place) {
                Ok(0) | Err(_) => break,
                Ok(more) => got += more,
            }
        }
        into.truncate(got);
        into
    }
}

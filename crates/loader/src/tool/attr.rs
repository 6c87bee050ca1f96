//! The argument of a command of `bpf()`.

use std::os::fd::RawFd;

use rustix::io::Errno;

use crate::tool::user::User;
use crate::uapi::attr;

/// The fields of `union bpf_attr`, zero where the tool gave none.
#[derive(Debug, Clone)]
pub struct Attr {
    bytes: [u8; attr::SIZE],
    address: u64,
    size: usize,
}

impl Attr {
    /// Reads the tool's.
    ///
    /// # Errors
    /// `EFAULT`, and `E2BIG` if it asks for what is not known here.
    pub fn read(user: &dyn User, address: u64, size: u32) -> Result<Attr, Errno> {
        let size = size as usize;
        if size as u64 > crate::memory::PAGE {
            return Err(Errno::TOOBIG);
        }
        let given = user.bytes(address, size)?;
        if given.iter().skip(attr::SIZE).any(|byte| *byte != 0) {
            return Err(Errno::TOOBIG);
        }
        let mut bytes = [0; attr::SIZE];
        let known = size.min(attr::SIZE);
        bytes[..known].copy_from_slice(&given[..known]);
        Ok(Attr {
            bytes,
            address,
            size,
        })
    }

    /// All fields.
    pub fn bytes(&self) -> &[u8; attr::SIZE] {
        &self.bytes
    }

    /// Has somebody else answer the command: what is written into it is the tool's.
    ///
    /// # Errors
    /// The other one's, or `EFAULT`.
    pub fn pass(
        &self,
        user: &dyn User,
        to: impl FnOnce(&mut [u8]) -> Result<i64, Errno>,
    ) -> Result<i64, Errno> {
        let mut bytes = self.bytes;
        let bytes = &mut bytes[..self.size.min(attr::SIZE)];
        let answer = to(bytes);
        // One that is only read may lie where nobody may write.
        if *bytes != self.bytes[..bytes.len()] {
            user.write(self.address, bytes)?;
        }
        answer
    }

    /// A 32-bit field.
    pub fn u32(&self, at: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.bytes[at..at + 4]);
        u32::from_ne_bytes(word)
    }

    /// A 64-bit field.
    pub fn u64(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes[at..at + 8]);
        u64::from_ne_bytes(word)
    }

    /// A descriptor.
    pub fn fd(&self, at: usize) -> RawFd {
        self.u32(at) as RawFd
    }

    /// A name of 16 bytes.
    pub fn name(&self, at: usize) -> String {
        let bytes = &self.bytes[at..at + 16];
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(16);
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    /// Writes a field of the tool's, if its structure has it.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn answer(&self, user: &dyn User, at: usize, value: u32) -> Result<(), Errno> {
        if at + 4 > self.size {
            return Ok(());
        }
        user.write(self.address + at as u64, &value.to_ne_bytes())
    }
}

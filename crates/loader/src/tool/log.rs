//! Text for the tool about what it loads.

use rustix::io::Errno;

use crate::tool::user::User;

/// Where a tool wants text about what it loads.
#[derive(Debug, Clone, Copy)]
pub struct Log {
    /// Of the buffer.
    pub address: u64,
    /// Its bytes.
    pub size: u32,
    /// 0 for none.
    pub level: u32,
}

impl Log {
    /// Writes as much as there is room for, and a NUL. Says how much room all of it takes.
    ///
    /// # Errors
    /// `EFAULT`, and `ENOSPC` when not all of it fits, as in Linux.
    pub fn write(&self, user: &dyn User, text: &str) -> Result<u32, Errno> {
        if self.level == 0 || self.address == 0 || self.size == 0 {
            return Ok(0);
        }
        let room = self.size as usize - 1;
        let part = &text.as_bytes()[..room.min(text.len())];
        user.write(self.address, part)?;
        user.write(self.address + part.len() as u64, &[0])?;
        if text.len() > room {
            return Err(Errno::NOSPC);
        }
        Ok(text.len() as u32 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::user::tests::Memory;

    #[test]
    fn a_log_that_does_not_fit_is_cut_and_said() {
        let memory = Memory::default();
        let address = memory.put(&[7; 16]);
        let log = |size, level| Log {
            address,
            size,
            level,
        };
        assert_eq!(log(16, 0).write(&memory, "text"), Ok(0));
        assert_eq!(memory.get(address, 1), [7]);
        assert_eq!(log(4, 1).write(&memory, "text"), Err(Errno::NOSPC));
        assert_eq!(memory.get(address, 5), *b"tex\0\x07");
        assert_eq!(log(5, 1).write(&memory, "text"), Ok(5));
        assert_eq!(memory.get(address, 6), *b"text\0\x07");
    }
}

//! What is agreed between who puts an agent into a running process and that agent: a block of
//! memory in the process.
//!
//! It is the only channel before there is a socket, and the only one that works while every thread
//! is stopped. The process that injects reads and writes it from outside; each word has one writer
//! at a time, as `state` says.

use std::sync::atomic::AtomicU32;

/// Both sides have the same; another one means that they are of different releases.
pub const CONTROL_VERSION: u32 = 2;
/// Name of the agent's function that takes a [`Control`].
pub const CONTROL_ENTRY: &str = "warpbpf_live";
/// Bytes for a path, and for what went wrong, with their NULs.
pub const CONTROL_TEXT: usize = 1024;
/// What an agent refuses with that finds the descriptor of its socket closed.
pub const CLOSED: &str = "the application closed the socket that was made for us, as it closes all descriptors: try again";
/// Most bytes of one change of code.
pub const PATCH_BYTES: usize = 12;

/// Whose turn it is, and how far it went. Values of [`Control::state`].
pub mod state {
    /// The agent is being loaded, or prepares.
    pub const BEGUN: u32 = 0;
    /// The library could not be loaded, or has no such function; [`super::Control::text`] says why.
    /// The thread ends.
    pub const NOT_LOADED: u32 = 1;
    /// The agent refuses, for the reason in [`super::Control::text`]. The thread ends, and nothing
    /// was changed.
    pub const REFUSED: u32 = 2;
    /// The agent asks for [`super::Control::patches`] to be made, and waits.
    pub const PREPARED: u32 = 3;
    /// They were made. Of a detach: and no thread was inside the agent.
    pub const PATCHED: u32 = 4;
    /// As [`PATCHED`], but a thread was inside the agent: what it may use must stay.
    pub const PATCHED_BUSY: u32 = 5;
    /// They were not made, and the code is as it was.
    pub const NOT_PATCHED: u32 = 6;
    /// The agent has done its part; [`super::Control::text`] may say something. The thread ends.
    pub const DONE: u32 = 7;
}

/// What is wanted. Values of [`Control::operation`].
pub mod operation {
    /// Put hooks in, and speak to the tool at the other end of [`super::Control::socket`].
    pub const ATTACH: u32 = 1;
    /// Take hooks out, and free what can be freed.
    pub const DETACH: u32 = 2;
}

/// The block. Addresses are of the process that it lies in.
#[repr(C)]
#[derive(Debug)]
#[expect(
    missing_docs,
    reason = "the functions are libc's, named as they are there"
)]
pub struct Control {
    /// [`CONTROL_VERSION`].
    pub version: u32,
    /// One of [`operation`].
    pub operation: u32,
    /// One of [`state`].
    pub state: AtomicU32,
    /// The agent's end of its connection. Of a detach: nothing is said on it, and nobody has the
    /// other end when the caller is gone.
    pub socket: i32,
    /// Address of the first [`Patch`].
    pub patches: u64,
    /// How many there are.
    pub n_patches: u64,
    /// The thread that runs the agent's function, as the kernel counts in the process's own
    /// namespace; 0 before it began.
    pub thread: u32,
    pub reserved: u32,
    /// The thread that runs it, as libc names it.
    pub handle: u64,
    /// [`CONTROL_ENTRY`] in an agent that is loaded already, else 0.
    pub entry: u64,
    pub dlopen: u64,
    pub dlsym: u64,
    pub dlerror: u64,
    pub pthread_self: u64,
    pub pthread_detach: u64,
    /// [`CONTROL_ENTRY`], with its NUL.
    pub name: [u8; 32],
    /// The agent's file, with its NUL.
    pub path: [u8; CONTROL_TEXT],
    /// What went wrong, or is to be known; with its NUL.
    pub text: [u8; CONTROL_TEXT],
}

/// A change of code.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patch {
    /// Where.
    pub at: u64,
    /// How many bytes.
    pub length: u64,
    /// What stands there now.
    pub before: [u8; PATCH_BYTES],
    /// What is to stand there.
    pub after: [u8; PATCH_BYTES],
}

impl Patch {
    /// `None` if the two have not the same length, or are too long.
    pub fn new(at: u64, before: &[u8], after: &[u8]) -> Option<Patch> {
        if before.len() != after.len() || before.len() > PATCH_BYTES {
            return None;
        }
        let padded = |bytes: &[u8]| {
            let mut all = [0; PATCH_BYTES];
            all[..bytes.len()].copy_from_slice(bytes);
            all
        };
        Some(Patch {
            at,
            length: before.len() as u64,
            before: padded(before),
            after: padded(after),
        })
    }

    /// The change that takes this one back.
    pub fn back(self) -> Patch {
        Patch {
            before: self.after,
            after: self.before,
            ..self
        }
    }

    /// As it lies in memory.
    pub fn from_bytes(bytes: &[u8; size_of::<Patch>()]) -> Patch {
        fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
            let mut part = [0; N];
            part.copy_from_slice(&bytes[at..at + N]);
            part
        }
        Patch {
            at: u64::from_le_bytes(part(bytes, 0)),
            length: u64::from_le_bytes(part(bytes, 8)),
            before: part(bytes, 16),
            after: part(bytes, 16 + PATCH_BYTES),
        }
    }
}

const _: () = assert!(size_of::<Patch>() == 40 && size_of::<Control>() < 4096);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_and_back_is_nothing() {
        let patch = Patch::new(0x1001, &[1, 2, 3, 4, 5], &[9, 8, 7, 6, 5]).unwrap();
        assert_eq!(patch.back().before, [9, 8, 7, 6, 5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(patch.back().back(), patch);
        assert_eq!(Patch::new(0, &[1], &[1, 2]), None);
        assert_eq!(Patch::new(0, &[0; 13], &[0; 13]), None);
        let mut bytes = [0; 40];
        bytes[..8].copy_from_slice(&0x1001u64.to_le_bytes());
        bytes[8] = 5;
        bytes[16..21].copy_from_slice(&[1, 2, 3, 4, 5]);
        bytes[28..33].copy_from_slice(&[9, 8, 7, 6, 5]);
        assert_eq!(Patch::from_bytes(&bytes), patch);
    }
}

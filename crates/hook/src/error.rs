//! Why a hook is refused.

use crate::maps::Unread;

/// Why a function is not hooked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    /// A byte sequence that is no instruction.
    #[error("its code at {address:#x} cannot be decoded")]
    Undecodable {
        /// Where it stands.
        address: u64,
    },
    /// What was named as an entry of a procedure linkage table is none.
    #[error(
        "that is no entry of a procedure linkage table that jumps to a function, but `{text}`; where there is a `.plt.sec`, take the entry there"
    )]
    Entry {
        /// What stands there.
        text: String,
    },
    /// What the first instruction does cannot be taken back.
    #[error("its first instruction `{text}` cannot be undone")]
    First {
        /// The instruction.
        text: String,
    },
    /// The instruction under a breakpoint is not known.
    #[error(
        "a breakpoint of a debugger or a uprobe is its first instruction, and what it stands on is not known: {source}"
    )]
    Breakpoint {
        /// Why not.
        source: BeneathError,
    },
    /// The jump would take the place of a breakpoint.
    #[error("a breakpoint of a debugger or a uprobe stands where the jump would")]
    Covered,
    /// Somebody else has a jump there.
    #[error("it is hooked already by somebody else (`{text}`)")]
    Taken {
        /// The jump.
        text: String,
    },
    /// There is no room for a jump.
    #[error("it ends {bytes} bytes behind its first instruction, a jump needs {needs}")]
    Short {
        /// What there is behind the first instruction.
        bytes: usize,
        /// What a jump takes.
        needs: usize,
    },
    /// The function itself branches to what the jump would cover.
    #[error("the branch at {from:#x} leads into its first instructions")]
    BranchedInto {
        /// Where the branch stands.
        from: u64,
    },
    /// The instructions do what they do only where they are.
    #[error("its first instructions cannot be moved: {reason}")]
    Relocate {
        /// Which, and why.
        reason: String,
    },
    /// A call that may throw would have to be moved.
    #[error(
        "its first instructions hold the call `{text}`, and an exception from there would not find its way back"
    )]
    Calls {
        /// The call.
        text: String,
    },
    /// Stubs find no memory that a jump reaches.
    #[error("there is no free memory within 1 GiB of it")]
    NoRoom,
    /// `/proc/self/maps` cannot be read.
    #[error("it is not known where memory is free: {0}")]
    Unread(Unread),
    /// The jump cannot be written.
    #[error("its code cannot be changed: {source}")]
    Write {
        /// Why not.
        source: WriteError,
    },
}

/// Why it is not known what a breakpoint stands on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BeneathError {
    /// `/proc/self/maps` cannot be read.
    #[error("{0}")]
    Maps(Unread),
    /// The code was made when the process ran.
    #[error("it is in no file")]
    NoFile,
    /// The file of the code cannot be read.
    #[error("`{path}` cannot be read: {error}")]
    File {
        /// Its path.
        path: String,
        /// What the system said.
        error: String,
    },
    /// The file is not the one that was loaded.
    #[error("`{path}` has other code there")]
    Other {
        /// Its path.
        path: String,
    },
    /// Nobody has put it there.
    #[error("it is the function's own")]
    Own,
}

/// Why code is not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// It is not what it was when the change was planned.
    #[error("somebody else changed it in the meantime")]
    Changed,
    /// It is as before, although no call failed.
    #[error("the kernel did not take the change")]
    NotTaken,
    /// A call of the system failed.
    #[error("{call} failed: {error}")]
    System {
        /// Its name.
        call: &'static str,
        /// What the system said.
        error: String,
    },
    /// A copy of the pages is too large for a file.
    #[error(
        "a copy of the code is larger than files of this process may be (RLIMIT_FSIZE, `ulimit -f`): raise the limit"
    )]
    FileLimit,
    /// A copy of the pages cannot be written.
    #[error("writing a copy of the code failed: {error}")]
    Copy {
        /// What the system said.
        error: String,
    },
    /// A bug of ours.
    #[error("{bytes} bytes of stubs in {room}")]
    Room {
        /// Bytes of the stubs.
        bytes: usize,
        /// Bytes of the memory for them.
        room: usize,
    },
}

/// Why there are no stubs for functions that are known by address alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StubsError {
    /// No free memory within reach.
    #[error("there is no free memory")]
    NoRoom,
    /// It is not known where memory is free.
    #[error("{0}")]
    Memory(HookError),
    /// They cannot be written.
    #[error("{0}")]
    Write(#[from] WriteError),
}

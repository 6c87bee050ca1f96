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
        "a breakpoint of a debugger or a uprobe is its first instruction, and what it stands on is not known: {why}"
    )]
    Breakpoint {
        /// Why not.
        why: String,
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
    #[error("its code cannot be changed: {reason}")]
    Write {
        /// What the system said.
        reason: String,
    },
}

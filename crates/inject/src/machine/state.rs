//! What there is to know of a thread that is moved, whatever the processor.

/// A system call that a thread was stopped in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting<R> {
    /// Its number.
    pub(crate) number: i64,
    /// Our stop has ended it with `EINTR`, as a signal would have: with these registers it is made
    /// again.
    pub(crate) again: Option<R>,
}

/// Registers of floating point and vectors, all of them.
#[derive(Debug, Clone)]
pub(crate) struct Vectors {
    /// The kernel's number of the set.
    pub(crate) kind: i32,
    /// As `ptrace` gives them.
    pub(crate) bytes: Vec<u8>,
}

/// A signal frame: `rt_sigreturn` with the stack pointer there gives a thread all of its registers
/// back.
#[derive(Debug)]
pub(crate) struct Frame {
    /// Where it is to lie.
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
}

/// How a thread goes on that was sent home by its frame: what the kernel remembered of its system
/// call is lost then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    target_arch = "aarch64",
    expect(
        dead_code,
        reason = "the kernel puts such a thread in front of its call, or it is not borrowed"
    )
)]
pub(crate) enum Return {
    /// As it would have without us.
    Same,
    /// A wait for a time begins anew with all of its time.
    Anew,
    /// Its system call ends with `EINTR`, as by a signal.
    Ended,
    /// It does not: its returns are checked against a second stack, which no frame can be made for
    /// from outside.
    Lost,
}

pub(super) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

//! What the GPU holds, as the commands of `bpf()` need it. The real one is in `live`; tests bring
//! their own.

use std::sync::Arc;

use rustix::io::Errno;
use warpbpf_maps::MapPlan;
use warpbpf_wire::{MapOp, OpCode, Outcome};

/// A map's memory as it was when copied, and how it is laid out.
#[derive(Debug, Clone)]
pub struct Copied {
    /// The layout.
    pub plan: Arc<MapPlan>,
    /// The bytes in each context.
    pub parts: Arc<Vec<Vec<u8>>>,
}

/// A session with an application, or what it left behind.
pub trait Session: Send + Sync {
    /// The number of a map of the tool in the session, by its place in the kernel's table.
    fn number(&self, map: usize) -> Option<u32>;

    /// Multiprocessors, of all contexts together.
    fn sms(&self) -> u32;

    /// A copy of a map, at most a moment old; `None` if there is none yet.
    ///
    /// # Errors
    /// `EIO` when the application does not answer.
    fn copied(&self, number: u32) -> Result<Option<Copied>, Errno>;

    /// The next lookup is better an operation, because the map is large and a copy of it would have
    /// to be made for that lookup, which may be alone.
    fn asks_singly(&self, number: u32) -> bool;

    /// Such an operation was not served: the next lookups are of a copy.
    fn gives_up_singles(&self);

    /// Operations, done in order.
    ///
    /// # Errors
    /// `EIO` when the application does not answer, `EOPNOTSUPP` when it cannot do that.
    fn operate(&self, number: u32, ops: &[MapOp<'_>]) -> Result<Vec<Outcome>, Errno>;
}

/// One operation on the device.
pub(crate) fn one(
    session: &dyn Session,
    number: u32,
    code: OpCode,
    key: &[u8],
    value: &[u8],
    flags: u64,
) -> Result<Vec<u8>, Errno> {
    let op = MapOp {
        code,
        flags,
        key,
        value,
    };
    let mut outcomes = session.operate(number, &[op])?;
    match outcomes.pop() {
        Some(outcome) if outcome.errno == 0 => Ok(outcome.bytes),
        Some(outcome) => Err(errno(i64::from(outcome.errno))),
        None => Err(Errno::IO),
    }
}

/// Linux's number, negative, as an error.
pub(crate) fn errno(number: i64) -> Errno {
    let number = i32::try_from(-number).unwrap_or(0);
    if (1..4096).contains(&number) {
        Errno::from_raw_os_error(number)
    } else {
        Errno::IO
    }
}

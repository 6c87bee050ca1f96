//! What can be wrong with memory that agent and tool share.

use rustix::io::Errno;

/// What is wrong with a shared area.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum SharedError {
    #[error("the shared area cannot be set up: `{call}` failed with {errno}")]
    Os { call: &'static str, errno: Errno },
    #[error(
        "what is shared with the tool has {bytes} bytes, and files of this process may have {limit} (RLIMIT_FSIZE, `ulimit -f`): raise the limit"
    )]
    Limit { bytes: u64, limit: u64 },
    #[error("the shared area would have {bytes} bytes, more than this machine can address")]
    TooLarge { bytes: u128 },
    #[error("the shared area is not one of this warpbpf: {what}")]
    Format { what: String },
    #[error("map {map} does not exist: the shared area has {maps}")]
    Map { map: usize, maps: usize },
    #[error("a snapshot of map {map} has {expected} bytes, not {got}")]
    Size { map: usize, expected: u64, got: u64 },
    #[error("map {map} was published faster than it could be copied, {tries} times in a row")]
    Busy { map: usize, tries: u32 },
    #[error("the event ring is damaged at {position}: {what}")]
    Ring { position: u64, what: String },
    #[error(
        "the record header {header:#x} at {position} of the event ring is damaged (map {map}, ring {shard}); {skipped} bytes were skipped"
    )]
    Record {
        map: u32,
        shard: u32,
        position: u64,
        header: u32,
        skipped: u64,
    },
    #[error("another tool has taken the events over")]
    TakenOver,
}

pub(super) fn os(call: &'static str) -> impl FnOnce(Errno) -> SharedError {
    move |errno| SharedError::Os { call, errno }
}

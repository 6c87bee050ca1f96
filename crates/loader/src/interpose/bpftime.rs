//! What bpftime's tools and their users expect beside `bpf()`: the functions by which maps of type
//! 1527 are read and looked into, which they look up by name because libbpf has none.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::global;
use super::guard::inside;
use crate::objects::contents::{Contents, Records};
use crate::objects::handle::Handle;

/// Gets a record, its bytes, and what the tool wants to be given.
pub type Take = unsafe extern "C" fn(*const c_void, u64, *mut c_void);

/// What bpftime says of a map of type 1527, as its `bpftime_gpu_ringbuf.h` lays it out.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStats {
    /// Bytes of a record.
    pub value_size: u64,
    /// `max_entries`. Here it is the room of all threads together that follows from it.
    pub entries_per_thread: u64,
    /// Threads for which there is room: as many as were asked for. Here all have.
    pub allocated_thread_slots: u64,
    /// Records that are here or were given to the tool.
    pub committed_records: u64,
    /// Records that the tool was given.
    pub collected_records: u64,
    /// Records that are here for it.
    pub pending_records: u64,
    /// Of threads beyond the last slot: there are none.
    pub oob_drops: u64,
    /// There was no room, on the device or here.
    pub full_drops: u64,
    /// Of other sizes: a record may have any.
    pub bad_size_drops: u64,
    /// A bounded retry ran out.
    pub other_drops: u64,
    /// Records that somebody is writing: none is here before it is whole.
    pub dirty_slots: u64,
}

/// A map of type 1527, by a descriptor of the tool's.
struct Found {
    at: usize,
    records: Arc<Records>,
    value_size: u32,
    max_entries: u32,
    threads: u64,
}

fn find(fd: c_int) -> Option<Found> {
    let found = inside(|| {
        let kernel = global::existing()?;
        let Some(Handle::Map(at)) = kernel.handle(fd) else {
            return None;
        };
        let map = kernel.maps.get(at)?;
        let Contents::Records(records) = &map.contents else {
            return None;
        };
        Some(Found {
            at,
            records: records.clone(),
            value_size: map.spec.value_size,
            max_entries: map.spec.max_entries,
            threads: kernel.config.threads,
        })
    });
    found.flatten()
}

/// Says what has become of the records of a map of type 1527. 0, or an error as a negative number.
///
/// # Safety
/// `into` is null or can be written to.
pub unsafe fn stats(fd: c_int, into: *mut RingStats) -> c_int {
    let (Some(found), false) = (find(fd), into.is_null()) else {
        return -libc::EINVAL;
    };
    let told = inside(|| {
        // First what is on its way, so that nothing is in neither.
        let astray = global::live().astray(found.at);
        let (pending, given) = found.records.counts();
        RingStats {
            value_size: found.value_size.into(),
            entries_per_thread: found.max_entries.into(),
            allocated_thread_slots: found.threads,
            committed_records: given + pending + astray.waiting,
            collected_records: given,
            pending_records: pending + astray.waiting,
            full_drops: astray.full,
            other_drops: astray.busy,
            ..RingStats::default()
        }
    });
    let Some(told) = told else {
        return -libc::EIO;
    };
    // SAFETY: the caller's promise, which is that of the tool.
    unsafe { into.write(told) };
    0
}

/// Gives the tool all records that have come. How many, or an error as a negative number.
pub fn poll(fd: c_int, context: *mut c_void, take: Option<Take>) -> c_int {
    let (Some(Found { records, .. }), Some(take)) = (find(fd), take) else {
        return -libc::EINVAL;
    };
    let taken = records.take();
    for record in &taken {
        // SAFETY: the tool's own function, called as bpftime calls it, with bytes that outlive the
        // call.
        unsafe { take(record.as_ptr().cast(), record.len() as u64, context) };
    }
    c_int::try_from(taken.len()).unwrap_or(c_int::MAX)
}

/// bpftime's call for the records of a map of type 1527: gives each to `take`, and says how many
/// there were.
#[unsafe(no_mangle)]
extern "C" fn bpftime_syscall_server__poll_gpu_ringbuf_map(
    fd: c_int,
    context: *mut c_void,
    take: Option<Take>,
) -> c_int {
    poll(fd, context, take)
}

/// bpftime's call for what has become of a map's records ([`RingStats`]).
#[unsafe(no_mangle)]
extern "C" fn bpftime_syscall_server__get_gpu_ringbuf_stats(
    fd: c_int,
    into: *mut RingStats,
) -> c_int {
    // SAFETY: the tool gives a structure of its own, as bpftime asks.
    unsafe { stats(fd, into) }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::RingStats;

    #[test]
    fn statistics_lie_where_bpftime_has_them() {
        assert_eq!(size_of::<RingStats>(), 88);
        let words = [
            offset_of!(RingStats, committed_records),
            offset_of!(RingStats, pending_records),
            offset_of!(RingStats, full_drops),
            offset_of!(RingStats, dirty_slots),
        ];
        assert_eq!(words, [24, 40, 56, 80]);
    }
}

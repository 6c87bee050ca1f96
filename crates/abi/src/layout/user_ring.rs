//! USER_RINGBUF: records from the host to programs, in the format of Linux's user ring buffer.

use crate::align::align_up;

/// A ring that the host fills and programs drain.
///
/// Positions are bytes since the ring was made and only grow. The host writes records, then moves
/// `PRODUCER`; a program that drains reads `PRODUCER`, calls back for each record, and moves
/// `CONSUMER`. A record is a header as in Linux (u32 length with the flags [`UserRingLayout::BUSY`]
/// and [`UserRingLayout::DISCARDED`], u32 zero) and its payload, and takes a multiple of 8 bytes.
/// It never crosses the end of the ring: the host fills what is left there with a discarded record.
///
/// It lies in device memory, and the host writes it by copies: a program that finds nothing to
/// drain has looked at one sector of L2, where a ring in the host's memory would cost every thread
/// of a grid a read across the bus.
///
/// One lane drains at a time, and another lane gets `-EBUSY` at once. `LOCK` holds the
/// %globaltimer of the moment when it was taken. One that is older than
/// [`UserRingLayout::STALE_NS`] belongs to a thread that has ended (`gpu_exit` in the callback) or
/// was stopped, and is taken over; so is one from the future, which nobody who drains now has
/// taken. Both words are moved by CAS only, and `CONSUMER` only by who finds its own time in
/// `LOCK`: a drainer that comes back stops, and the record that it was called for is given twice.
///
/// A header that cannot be one says nothing about where the next record begins. Who finds it moves
/// `CONSUMER` to `PRODUCER`, counts that in `BROKEN`, and tells `-EINVAL`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UserRingLayout {
    /// Bytes of the data: a power of two, at least [`UserRingLayout::LEAST`].
    pub bytes: u32,
}

impl UserRingLayout {
    /// A ring for `max_entries` bytes, rounded up to a power of two as libbpf does; `None` if that
    /// is too large.
    pub const fn new(max_entries: u32) -> Option<UserRingLayout> {
        if max_entries > Self::MOST {
            return None;
        }
        let bytes = max_entries.next_power_of_two();
        Some(UserRingLayout {
            bytes: if bytes < Self::LEAST {
                Self::LEAST
            } else {
                bytes
            },
        })
    }
    /// Where the host has filled it to (u64).
    pub const PRODUCER: u64 = 0;
    /// Where programs have drained it to (u64).
    pub const CONSUMER: u64 = 8;
    /// %globaltimer when the lane that drains took it, its lowest bit set; 0 if nobody drains
    /// (u64).
    pub const LOCK: u64 = 16;
    /// Drainers that were taken over (u64).
    pub const TAKEN_OVER: u64 = 24;
    /// Times that records were skipped because a header was none (u64).
    pub const BROKEN: u64 = 32;
    /// Where data begins.
    pub const DATA: u64 = 128;
    /// Record header: u32 length of the payload with flags, u32 zero. Payload follows.
    pub const HEADER: u64 = 8;
    /// Records begin at multiples of this.
    pub const ALIGN: u64 = 8;
    /// Header flag: reserved and not yet submitted; `BPF_RINGBUF_BUSY_BIT`.
    pub const BUSY: u32 = 1 << 31;
    /// Header flag: to be skipped; `BPF_RINGBUF_DISCARD_BIT`.
    pub const DISCARDED: u32 = 1 << 30;
    /// Least bytes of data: a page, as in Linux.
    pub const LEAST: u32 = 4096;
    /// Most bytes of data: an offset and a length fit into 32 bits each.
    pub const MOST: u32 = 1 << 30;
    /// Records that one call drains at most. Linux allows 131,072; here a program's cost has a
    /// bound.
    pub const SAMPLES: u32 = 16;
    /// Discarded records that one call skips at most, besides.
    pub const SKIPPED: u32 = 16;
    /// From this age on a lock is taken over.
    pub const STALE_NS: u64 = 1_000_000_000;

    /// Bytes in all.
    pub const fn size(&self) -> u64 {
        Self::DATA + self.bytes as u64
    }
    /// Bytes that a record of `payload` takes.
    pub const fn record_bytes(payload: u64) -> u64 {
        align_up(Self::HEADER + payload, Self::ALIGN)
    }
    /// Largest payload.
    pub const fn max_payload(&self) -> u64 {
        self.bytes as u64 - Self::HEADER
    }
}

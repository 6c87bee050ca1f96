//! Linux's clocks, as programs name them.

use rustix::time::{ClockId, DynamicClockId, Timespec};

/// A clock of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Linux's")]
pub enum Clock {
    Monotonic,
    Boot,
    Tai,
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn monotonic_ns() -> u64 {
    nanoseconds(rustix::time::clock_gettime(ClockId::Monotonic))
}

/// Nanoseconds of a clock of the host, for programs that run there.
pub(crate) fn host_ns(clock: Clock) -> u64 {
    match clock {
        Clock::Monotonic => monotonic_ns(),
        Clock::Boot => monotonic_ns() + ahead_ns(DynamicClockId::Boottime),
        Clock::Tai => monotonic_ns() + ahead_ns(DynamicClockId::Tai),
    }
}

pub(crate) fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What a clock is ahead of CLOCK_MONOTONIC, in nanoseconds, but for the time between two calls; 0
/// where there is no such clock.
pub(crate) fn ahead_ns(clock: DynamicClockId<'_>) -> u64 {
    let before = monotonic_ns();
    rustix::time::clock_gettime_dynamic(clock)
        .map_or(0, |now| nanoseconds(now).saturating_sub(before))
}

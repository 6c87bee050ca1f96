//! Host time on the device: what `bpf_ktime_get_ns` returns inside a kernel.
//!
//! A one-thread kernel answers requests in page-locked memory with its %globaltimer. For each answer the host knows an
//! interval of its own clock in which the device read its timer; the shortest interval's middle is the estimate, half its
//! length the error bound. Two estimates some time apart give the drift, so that the error does not grow between them.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, DynamicClockId};
use warpbpf_abi::layout::env;
use warpbpf_abi::names::SOFT_DEVICE;
use warpbpf_driver::{Driver, DriverError, Function, Stream};

use crate::held::Held;

/// Requests per measurement; the shortest round trip of them counts.
const ROUNDS: u64 = 24;
/// How long the host waits for one answer before it gives the measurement up: the device may be full of other work.
const PATIENCE_NS: u64 = 50_000_000;
/// Estimates closer together than this say little about the drift.
const DRIFT_BASE_NS: u64 = 40_000_000;

/// Mailbox: request at 0, answer number at 64, answer time at 72 (each u64).
const MAILBOX_BYTES: usize = 128;
const ANSWER_NUMBER: usize = 64;
const ANSWER_TIME: usize = 72;

/// The answering kernel. It ends by itself 20 ms after the last request, so a dead host process leaves no spinning kernel.
const KERNEL: &str = "\
.version 6.3
.target sm_75
.address_size 64
.visible .entry wbpf_clock(.param .u64 mailbox, .param .u64 rounds)
{
	.reg .pred %p<4>;
	.reg .b64 %rd<10>;
	ld.param.u64 %rd1, [mailbox];
	ld.param.u64 %rd2, [rounds];
	mov.u64 %rd3, 0;
NEXT:
	add.u64 %rd3, %rd3, 1;
	setp.gt.u64 %p0, %rd3, %rd2;
	@%p0 bra DONE;
	mov.u64 %rd4, %globaltimer;
WAIT:
	ld.relaxed.sys.u64 %rd5, [%rd1];
	setp.ge.u64 %p1, %rd5, %rd3;
	@%p1 bra ANSWER;
	mov.u64 %rd6, %globaltimer;
	sub.u64 %rd7, %rd6, %rd4;
	setp.gt.u64 %p2, %rd7, 20000000;
	@%p2 bra DONE;
	bra WAIT;
ANSWER:
	mov.u64 %rd6, %globaltimer;
	st.relaxed.sys.u64 [%rd1+72], %rd6;
	st.release.sys.u64 [%rd1+64], %rd3;
	bra NEXT;
DONE:
	ret;
}
";

/// One instant on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    /// %globaltimer, ns.
    pub device: u64,
    /// CLOCK_MONOTONIC, ns.
    pub host: u64,
    /// Bound of `host`'s error, ns.
    pub error: u64,
    /// Drift in 2^-32 (host runs faster than the device by this).
    pub drift: i64,
}

/// The calibration of one context.
#[derive(Debug)]
pub(crate) struct Clock {
    kernel: Option<Measuring>,
    first: Reading,
    last: Reading,
    index: u64,
}

#[derive(Debug)]
struct Measuring {
    function: Function,
    mailbox: *mut u8,
    device_mailbox: u64,
}
// SAFETY: the mailbox is page-locked memory that belongs to this value; it is accessed through atomics.
unsafe impl Send for Measuring {}

impl Clock {
    /// Calibrates and writes the first time record.
    pub(crate) fn new(
        driver: &Driver,
        held: &mut Held<'_>,
        env: u64,
        stream: Stream,
    ) -> Result<Clock, DriverError> {
        let info = driver.device_info(driver.current_device()?)?;
        let mut clock = Clock {
            kernel: None,
            first: Reading::default(),
            last: Reading::default(),
            index: 0,
        };
        if info.name != SOFT_DEVICE {
            let module = held.load_ptx(KERNEL)?;
            let function = driver.function(module, "wbpf_clock")?;
            let (mailbox, device_mailbox) = held.host_alloc(MAILBOX_BYTES)?;
            clock.kernel = Some(Measuring {
                function,
                mailbox,
                device_mailbox,
            });
        }
        // On the soft GPU both clocks are the same one: the zero reading maps each instant to itself.
        clock.renew(driver, env, stream)?;
        Ok(clock)
    }

    pub(crate) fn last(&self) -> Reading {
        self.last
    }

    /// Measures again and publishes. A measurement that got no answer leaves the old one in force.
    pub(crate) fn renew(
        &mut self,
        driver: &Driver,
        env: u64,
        stream: Stream,
    ) -> Result<(), DriverError> {
        if let Some(kernel) = &self.kernel {
            let Some(mut reading) = kernel.measure(driver, stream)? else {
                return Ok(());
            };
            if self.first.host == 0 {
                self.first = reading;
            }
            reading.drift = drift(&self.first, &reading).unwrap_or(self.last.drift);
            self.last = reading;
        }
        self.publish(driver, env, stream)
    }

    /// Writes the record that is not in use, then makes it the current one: a program reads either the old or the new.
    fn publish(&mut self, driver: &Driver, env: u64, stream: Stream) -> Result<(), DriverError> {
        let index = self.index ^ 1;
        let mut record = [0u8; env::TIME_STRIDE as usize];
        for (at, value) in [
            (env::TIME_BASE_DEVICE, self.last.device),
            (env::TIME_BASE_HOST, self.last.host),
            (env::TIME_DRIFT, self.last.drift as u64),
        ] {
            record[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
        }
        driver.write(env + env::TIME + index * env::TIME_STRIDE, &record, stream)?;
        driver.write(env + env::TIME_INDEX, &index.to_le_bytes(), stream)?;
        self.index = index;
        // Suspending moves one of them, setting the clock the other: both seldom enough for words of their own.
        for (at, clock) in [
            (env::BOOT_OFFSET, DynamicClockId::Boottime),
            (env::TAI_OFFSET, DynamicClockId::Tai),
        ] {
            driver.write(env + at, &ahead_ns(clock).to_le_bytes(), stream)?;
        }
        Ok(())
    }
}

/// Host nanoseconds gained per device nanosecond, in 2^-32.
fn drift(first: &Reading, now: &Reading) -> Option<i64> {
    let device = now.device.checked_sub(first.device)?;
    let host = now.host.checked_sub(first.host)?;
    if device < DRIFT_BASE_NS {
        return None;
    }
    let gained = i128::from(host) - i128::from(device);
    i64::try_from((gained << 32) / i128::from(device)).ok()
}

impl Measuring {
    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the mailbox has MAILBOX_BYTES bytes, is 8-aligned, and lives as long as this value.
        unsafe { AtomicU64::from_ptr(self.mailbox.add(offset).cast()) }
    }

    fn measure(&self, driver: &Driver, stream: Stream) -> Result<Option<Reading>, DriverError> {
        // SAFETY: the kernel of the previous measurement has ended (it was waited for), so only we touch the mailbox.
        unsafe { ptr::write_bytes(self.mailbox, 0, MAILBOX_BYTES) };
        // SAFETY: the kernel takes these two arguments and touches only the mailbox.
        unsafe {
            driver.launch(
                self.function,
                [1; 3],
                [1; 3],
                stream,
                &mut [self.device_mailbox, ROUNDS],
            )?
        };
        let mut best: Option<Reading> = None;
        for round in 1..=ROUNDS {
            let Some(reading) = self.ask(round) else {
                break;
            };
            if best.is_none_or(|b| reading.error < b.error) {
                best = Some(reading);
            }
        }
        driver.wait(stream)?;
        Ok(best)
    }

    fn ask(&self, round: u64) -> Option<Reading> {
        let before = monotonic_ns();
        self.word(0).store(round, Ordering::Release);
        loop {
            if self.word(ANSWER_NUMBER).load(Ordering::Acquire) == round {
                let after = monotonic_ns();
                let device = self.word(ANSWER_TIME).load(Ordering::Relaxed);
                let error = (after - before).div_ceil(2);
                return Some(Reading {
                    device,
                    host: before + error,
                    error,
                    drift: 0,
                });
            }
            if monotonic_ns() - before > PATIENCE_NS {
                return None;
            }
            std::hint::spin_loop();
        }
    }
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn monotonic_ns() -> u64 {
    nanoseconds(rustix::time::clock_gettime(ClockId::Monotonic))
}

/// Nanoseconds of a clock of the host, for programs that run there.
pub(crate) fn host_ns(clock: crate::cpu::Clock) -> u64 {
    match clock {
        crate::cpu::Clock::Monotonic => monotonic_ns(),
        crate::cpu::Clock::Boot => monotonic_ns() + ahead_ns(DynamicClockId::Boottime),
        crate::cpu::Clock::Tai => monotonic_ns() + ahead_ns(DynamicClockId::Tai),
    }
}

fn nanoseconds(time: rustix::time::Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What a clock is ahead of CLOCK_MONOTONIC, in nanoseconds, but for the time between two calls; 0 where there is no such
/// clock.
fn ahead_ns(clock: DynamicClockId<'_>) -> u64 {
    let before = monotonic_ns();
    rustix::time::clock_gettime_dynamic(clock)
        .map_or(0, |now| nanoseconds(now).saturating_sub(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_is_host_gain_per_device_time() {
        let first = Reading {
            device: 1_000,
            host: 5_000,
            error: 0,
            drift: 0,
        };
        let now = Reading {
            device: 1_000_001_000,
            host: 1_000_055_000,
            error: 0,
            drift: 0,
        };
        // 50,000 ns gained in 10^9: 50 ppm.
        assert_eq!(drift(&first, &now), Some(214_748));
        let back = Reading {
            device: 1_000_001_000,
            host: 999_955_000,
            error: 0,
            drift: 0,
        };
        assert_eq!(drift(&first, &back), Some(-214_748));
        assert_eq!(drift(&first, &first), None);
    }
}

//! Host time on the device: what `bpf_ktime_get_ns` returns inside a kernel.
//!
//! A one-thread kernel answers requests in page-locked memory with its %globaltimer. For each
//! answer the host knows an interval of its own clock in which the device read its timer; the
//! shortest interval's middle is the estimate, half its length the error bound. Two estimates some
//! time apart give the drift, so that the error does not grow between them.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, DynamicClockId};
use warpbpf_abi::layout::env;
use warpbpf_abi::names::SOFT_DEVICE;
use warpbpf_driver::{Driver, DriverError, Function, Stream};

use crate::cpu::clock::{ahead_ns, nanoseconds};
use crate::runtime::held::Held;

pub use crate::cpu::clock::monotonic_ns;

/// Requests per measurement; the shortest round trip of them counts.
const ROUNDS: u64 = 24;
/// How long the host waits for one answer before it gives the measurement up: the device may be
/// full of other work.
const PATIENCE_NS: u64 = 50_000_000;
/// How long the host looks without a pause. An answer of a kernel that runs comes in microseconds;
/// one that has not begun needs no processor to wait for it.
const SPIN_NS: u64 = 200_000;
/// Estimates closer together than this say little about the drift.
const DRIFT_BASE_NS: u64 = 40_000_000;

/// Mailbox: request at 0, answer number at 64, answer time at 72 (each u64).
const MAILBOX_BYTES: usize = 128;
const ANSWER_NUMBER: usize = 64;
const ANSWER_TIME: usize = 72;

/// The answering kernel. It ends by itself 20 ms after the last request, so a dead host process
/// leaves no spinning kernel.
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
    /// `None` on the soft GPU, whose clock the host reads itself.
    kernel: Option<Measuring>,
    first: Reading,
    last: Reading,
    index: u64,
}

#[derive(Debug)]
struct Measuring {
    function: Function,
    /// Its own: where kernels of the application fill the device, the answering kernel waits for
    /// them, and nothing else of ours shall.
    stream: Stream,
    mailbox: *mut u8,
    device_mailbox: u64,
    /// The answering kernel gave no answer: it may not have begun yet, and then it still will.
    unanswered: bool,
}
// SAFETY: the mailbox is page-locked memory that belongs to this value; it is accessed through
// atomics.
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
                stream: held.stream()?,
                mailbox,
                device_mailbox,
                unanswered: false,
            });
        }
        clock.renew(driver, env, stream)?;
        if let Some(kernel) = clock.kernel.as_mut().filter(|kernel| kernel.unanswered) {
            // What comes next may fail, and then the mailbox is given back.
            driver.wait(kernel.stream)?;
            kernel.unanswered = false;
        }
        Ok(clock)
    }

    pub(crate) fn last(&self) -> Reading {
        self.last
    }

    /// Measures again and publishes. A measurement that got no answer leaves the old one in force,
    /// and there is no other before its kernel has ended: where the device is full for long, that
    /// costs one wait of [`PATIENCE_NS`] and no more.
    pub(crate) fn renew(
        &mut self,
        driver: &Driver,
        env: u64,
        stream: Stream,
    ) -> Result<(), DriverError> {
        if let Some(kernel) = &mut self.kernel {
            let Some(mut reading) = kernel.measure(driver)? else {
                return Ok(());
            };
            if self.first.host == 0 {
                self.first = reading;
            }
            reading.drift = drift(&self.first, &reading).unwrap_or(self.last.drift);
            self.last = reading;
        } else {
            self.last = read_both();
        }
        self.publish(driver, env, stream)
    }

    /// Writes the record that is not in use, then makes it the current one: a program reads either
    /// the old or the new.
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
        // Suspending moves one of them, setting the clock the other: both seldom enough for words
        // of their own.
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
        // SAFETY: the mailbox has MAILBOX_BYTES bytes, is 8-aligned, and lives as long as this
        // value.
        unsafe { AtomicU64::from_ptr(self.mailbox.add(offset).cast()) }
    }

    fn measure(&mut self, driver: &Driver) -> Result<Option<Reading>, DriverError> {
        if self.unanswered && !driver.is_idle(self.stream)? {
            return Ok(None);
        }
        // SAFETY: the kernel of the previous measurement has ended (it was waited for, or its
        // stream is idle), so only we touch the mailbox.
        unsafe { ptr::write_bytes(self.mailbox, 0, MAILBOX_BYTES) };
        // SAFETY: the kernel takes these two arguments and touches only the mailbox.
        unsafe {
            driver.launch(
                self.function,
                [1; 3],
                [1; 3],
                self.stream,
                &mut [self.device_mailbox, ROUNDS],
            )?
        };
        self.unanswered = true;
        let mut best: Option<Reading> = None;
        for round in 1..=ROUNDS {
            let Some(reading) = self.ask(round) else {
                break;
            };
            if best.is_none_or(|b| reading.error < b.error) {
                best = Some(reading);
            }
        }
        if best.is_some() {
            // It has begun, so it ends soon by itself.
            driver.wait(self.stream)?;
            self.unanswered = false;
        }
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
            match monotonic_ns() - before {
                ..SPIN_NS => std::hint::spin_loop(),
                SPIN_NS..=PATIENCE_NS => std::thread::sleep(Duration::from_nanos(SPIN_NS / 2)),
                _ => return None,
            }
        }
    }
}

/// The soft GPU's clock is the time of day, and both clocks of the host run at one speed: there is
/// no drift. A time of day that is set is noticed by the next reading.
fn read_both() -> Reading {
    let read = |_| {
        let before = monotonic_ns();
        let device = nanoseconds(rustix::time::clock_gettime(ClockId::Realtime));
        let error = (monotonic_ns() - before).div_ceil(2);
        Reading {
            device,
            host: before + error,
            error,
            drift: 0,
        }
    };
    let readings = (0..ROUNDS).map(read);
    readings
        .min_by_key(|reading| reading.error)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ffi::{c_int, c_void};

    use warpbpf_driver::sys::{Api, CUresult, NOT_READY};

    use super::*;

    thread_local! {
        /// The device has room for the answering kernel.
        static ROOM: Cell<bool> = const { Cell::new(false) };
        static LAUNCHES: Cell<u32> = const { Cell::new(0) };
        static WAITS: Cell<u32> = const { Cell::new(0) };
        static MAILBOX: Cell<*mut u8> = const { Cell::new(ptr::null_mut()) };
    }

    unsafe extern "C" fn launch(_function: usize) -> CUresult {
        LAUNCHES.set(LAUNCHES.get() + 1);
        if ROOM.get() {
            // SAFETY: the mailbox was leaked; nobody looks into it during a launch.
            unsafe {
                let answer = |at: usize, word: u64| MAILBOX.get().add(at).cast::<u64>().write(word);
                answer(ANSWER_TIME, 7_000);
                answer(ANSWER_NUMBER, 1);
            }
        }
        0
    }

    unsafe extern "C" fn query(_stream: usize) -> CUresult {
        if ROOM.get() { 0 } else { NOT_READY }
    }

    unsafe extern "C" fn wait(_stream: usize) -> CUresult {
        WAITS.set(WAITS.get() + 1);
        0
    }

    unsafe extern "C" fn works(_first: *mut c_void, _second: c_int) -> CUresult {
        0
    }

    #[test]
    fn a_device_that_is_full_is_waited_for_once() {
        let address = |symbol: &'static str| match symbol {
            "cuLaunchKernel" => launch as *const c_void,
            "cuStreamQuery" => query as *const c_void,
            "cuStreamSynchronize" => wait as *const c_void,
            _ => works as *const c_void,
        };
        // SAFETY: the functions have the signatures of their symbols, or ignore arguments.
        let driver = Driver::new(unsafe { Api::resolve(address) }.unwrap());
        let mailbox = vec![0u64; MAILBOX_BYTES / 8].leak();
        let mut measuring = Measuring {
            function: Function(ptr::null_mut()),
            stream: Stream(ptr::null_mut()),
            mailbox: mailbox.as_mut_ptr().cast(),
            device_mailbox: 0,
            unanswered: false,
        };
        let asked = |measuring: &Measuring| measuring.word(0).load(Ordering::Relaxed);
        assert_eq!(measuring.measure(&driver).unwrap(), None);
        assert_eq!((LAUNCHES.get(), WAITS.get()), (1, 0), "it may never begin");
        let since = monotonic_ns();
        for _ in 0..1000 {
            assert_eq!(measuring.measure(&driver).unwrap(), None);
        }
        assert_eq!((LAUNCHES.get(), WAITS.get()), (1, 0), "only asked");
        assert!(monotonic_ns() - since < 10 * PATIENCE_NS);
        assert_eq!(asked(&measuring), 1, "the request stands");
        // It came to run after all; the next one is answered, at least once.
        ROOM.set(true);
        MAILBOX.set(measuring.mailbox);
        let reading = measuring.measure(&driver).unwrap().unwrap();
        assert_eq!(reading.device, 7_000);
        assert_eq!((LAUNCHES.get(), WAITS.get()), (2, 1));
        assert!(!measuring.unanswered);
    }

    #[test]
    fn the_clocks_of_the_soft_gpu_and_the_host_are_read_together() {
        let before = monotonic_ns();
        let reading = read_both();
        let now = nanoseconds(rustix::time::clock_gettime(ClockId::Realtime));
        let after = monotonic_ns();
        assert!((before..=after).contains(&reading.host));
        // Both clocks moved on by the same.
        assert!(now - reading.device <= after - before);
        assert!(reading.error <= after - before);
        assert_eq!(reading.drift, 0);
    }

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

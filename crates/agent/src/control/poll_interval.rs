//! When the control thread looks at maps, rings and the clock: often while kernels are launched or
//! records come, seldom afterwards, and never not at all. The driver does not say when a kernel
//! ends, and one may run for hours after its launch.
//!
//! Knows no clock of its own, so hours can be tested in no time.

use std::time::{Duration, Instant};

/// Time between two looks at rings that were empty, at first. It doubles.
pub(crate) const DRAIN_SHORT: Duration = Duration::from_millis(1);
/// Time between snapshots while kernels are launched, and most time between looks at rings.
pub(crate) const BUSY: Duration = Duration::from_millis(50);
/// How long after a launch snapshots come that often.
const BUSY_FOR: Duration = Duration::from_secs(2);
/// Time between snapshots afterwards; most time between looks at rings from which nothing has come
/// for [`QUIET_FOR`].
const QUIET: Duration = Duration::from_secs(1);
/// How long after the last launch or record.
const QUIET_FOR: Duration = Duration::from_secs(60);
/// Time between snapshots from then on: an application that does nothing for hours shall not be
/// busy with copies of large maps.
const RARE: Duration = Duration::from_secs(10);
/// Time between calibrations of the clock while kernels are launched, and afterwards, when its
/// drift is known well.
const CALIBRATE: Duration = Duration::from_secs(1);
const CALIBRATE_QUIET: Duration = Duration::from_secs(10);
/// Snapshots take at most one part in this many of the time; large maps are copied less often.
const SHARE: u32 = 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct PollInterval {
    /// When the last launch was seen.
    launched: Option<Instant>,
    /// When something last came out of a ring.
    yielded: Option<Instant>,
    /// Time between looks at the rings; short while they yield something.
    drain_pause: Duration,
    calibrated: Instant,
}

impl PollInterval {
    pub(crate) fn new(now: Instant) -> PollInterval {
        PollInterval {
            launched: None,
            yielded: None,
            drain_pause: DRAIN_SHORT,
            calibrated: now,
        }
    }

    /// Time since the last launch was seen; `None` before the first.
    pub(crate) fn idle(&self, now: Instant) -> Option<Duration> {
        self.launched.map(|at| now.saturating_duration_since(at))
    }

    /// Launches were seen. True if that is news: the rings may have filled since the last look.
    pub(crate) fn launch(&mut self, now: Instant) -> bool {
        let was_quiet = self.idle(now).is_none_or(|idle| idle > BUSY);
        self.launched = Some(now);
        if was_quiet {
            self.drain_pause = DRAIN_SHORT;
        }
        was_quiet
    }

    /// Time since a launch or a record was seen.
    fn quiet(&self, now: Instant) -> Option<Duration> {
        let last = self.launched.max(self.yielded);
        last.map(|at| now.saturating_duration_since(at))
    }

    /// Time until the next snapshots, after some that took `took`.
    pub(crate) fn until_snapshot(&self, now: Instant, took: Duration) -> Duration {
        let pause = if self.idle(now).is_none_or(|idle| idle < BUSY_FOR) {
            BUSY
        } else if self.quiet(now).is_none_or(|quiet| quiet < QUIET_FOR) {
            QUIET
        } else {
            RARE
        };
        pause.max(took * SHARE)
    }

    /// Time until the next look at the rings, after one that brought `bytes`: none while they yield
    /// something, ever more while they do not.
    pub(crate) fn until_drain(&mut self, now: Instant, bytes: u64) -> Duration {
        self.drain_pause = if bytes != 0 {
            self.yielded = Some(now);
            Duration::ZERO
        } else {
            let most = match self.quiet(now) {
                Some(quiet) if quiet >= QUIET_FOR => QUIET,
                Some(_) | None => BUSY,
            };
            (self.drain_pause * 2).clamp(DRAIN_SHORT, most)
        };
        self.drain_pause
    }

    /// It is time to calibrate the clock, and that is done now.
    pub(crate) fn calibrates(&mut self, now: Instant) -> bool {
        let pause = match self.idle(now) {
            None => return false,
            Some(idle) if idle < BUSY_FOR => CALIBRATE,
            Some(_) => CALIBRATE_QUIET,
        };
        let due = now.saturating_duration_since(self.calibrated) >= pause;
        if due {
            self.calibrated = now;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Looks from `from` for `during`, at which `bytes` come: their number, and the longest time
    /// between two of them.
    fn looks(
        poll_interval: &mut PollInterval,
        from: Instant,
        during: Duration,
        bytes: u64,
    ) -> (u32, Duration) {
        let (mut now, mut n, mut longest) = (from, 0, Duration::ZERO);
        while now < from + during {
            let pause = poll_interval.until_drain(now, bytes);
            // A look takes some time itself.
            now += pause.max(Duration::from_micros(50));
            longest = longest.max(pause);
            n += 1;
        }
        (n, longest)
    }

    #[test]
    fn a_kernel_that_runs_for_hours_is_looked_at_to_its_end() {
        let start = Instant::now();
        let mut poll_interval = PollInterval::new(start);
        assert!(poll_interval.launch(start), "the first one");
        let minute = Duration::from_secs(60);
        assert_eq!(looks(&mut poll_interval, start, minute, 0).1, BUSY);
        // Nothing more was launched, and nothing came: a look each second, without end.
        let (n, longest) = looks(&mut poll_interval, start + minute, HOUR, 0);
        assert_eq!(longest, QUIET);
        assert!((3600..3610).contains(&n), "{n} looks in an hour");
        // A record comes: looks are as frequent as they were, for the next minute, and so on.
        let mut now = start + 2 * HOUR;
        assert_eq!(poll_interval.until_drain(now, 1), Duration::ZERO);
        for _ in 0..10 {
            let (_, longest) = looks(&mut poll_interval, now, minute - BUSY, 0);
            assert_eq!(longest, BUSY);
            now += minute;
            assert_eq!(poll_interval.until_drain(now, 64), Duration::ZERO);
        }
    }

    #[test]
    fn rings_that_yield_something_are_looked_at_again_at_once() {
        let start = Instant::now();
        let mut poll_interval = PollInterval::new(start);
        poll_interval.launch(start);
        let pauses: Vec<Duration> = [0, 0, 8, 0, 0, 0]
            .map(|bytes| poll_interval.until_drain(start, bytes))
            .into();
        let ms = Duration::from_millis;
        assert_eq!(pauses, [ms(2), ms(4), ms(0), ms(1), ms(2), ms(4)]);
    }

    #[test]
    fn snapshots_never_cease() {
        let start = Instant::now();
        let mut poll_interval = PollInterval::new(start);
        let took = Duration::from_millis(1);
        assert_eq!(
            poll_interval.until_snapshot(start, took),
            BUSY,
            "it may begin soon"
        );
        poll_interval.launch(start);
        let at = |poll_interval: &PollInterval, seconds: u64| {
            poll_interval.until_snapshot(start + Duration::from_secs(seconds), took)
        };
        assert_eq!(
            [1, 2, 59, 60, 36_000].map(|seconds| at(&poll_interval, seconds)),
            [BUSY, QUIET, QUIET, RARE, RARE]
        );
        // What takes long comes seldom.
        let long = Duration::from_secs(2);
        assert_eq!(poll_interval.until_snapshot(start, long), 10 * long);
        // A kernel that writes events after a minute is at work, although nothing is launched.
        poll_interval.until_drain(start + HOUR, 1);
        assert_eq!(at(&poll_interval, 3600 + 59), QUIET);
        assert_eq!(at(&poll_interval, 3600 + 60), RARE);
        assert!(poll_interval.launch(start + 2 * HOUR));
        assert_eq!(at(&poll_interval, 7200), BUSY);
    }

    #[test]
    fn the_clock_is_renewed_as_long_as_the_application_lives() {
        let start = Instant::now();
        let mut poll_interval = PollInterval::new(start);
        let second = Duration::from_secs(1);
        assert!(
            !poll_interval.calibrates(start + HOUR),
            "nothing was launched"
        );
        poll_interval.launch(start + HOUR);
        let begun = start + HOUR;
        let asked: Vec<u32> = (0..40u32)
            .filter(|n| poll_interval.calibrates(begun + *n * second))
            .collect();
        assert_eq!(asked, [0, 1, 11, 21, 31]);
    }

    #[test]
    fn a_launch_after_a_pause_is_news() {
        let start = Instant::now();
        let mut poll_interval = PollInterval::new(start);
        assert!(poll_interval.launch(start));
        assert!(!poll_interval.launch(start + BUSY), "one of many");
        assert!(poll_interval.launch(start + 3 * BUSY));
        assert_eq!(poll_interval.idle(start + 4 * BUSY), Some(BUSY));
    }
}

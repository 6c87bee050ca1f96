//! `--max-overhead`: how much longer launches take with probes than without, measured while the
//! application runs, and an end to probes in kernels for which that is too much.
//!
//! Of each kernel, now and then one launch runs the original and the next one the variant, each
//! between two events of the driver in the launch's own stream. Two neighbours of one shape make a
//! pair; the median of their ratios decides. A launch only takes events that are there already, and
//! nobody waits for them: the control thread makes them, and asks from time to time which have
//! happened. Launches in captures and graphs, and those that may overlap with others, are not
//! measured.

use std::collections::HashMap;
use std::ffi::c_uint;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use warpbpf_driver::Driver;
use warpbpf_driver::sys::{self, CUevent, CUresult, CUstream};

use crate::kernels::entry::Entry;
use crate::kernels::shape::Shape;

/// Launches from one pair to the next, at first and once there are many.
const PERIODS: [u64; 2] = [8, 64];
/// Launches of a kernel that are measured often.
const OFTEN: u64 = 256;
/// Pairs before which nothing is decided.
const ENOUGH: usize = 16;
/// Pairs that are kept of a kernel: the newest.
const KEPT: usize = 64;
/// Events that lie ready in each context.
const READY: usize = 32;
/// Measurements that wait for their events; more are not begun.
const MOST_WAITING: usize = 256;

type Elapsed = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;

/// What a launch is measured as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sample {
    Original,
    Variant,
}

/// What must be the same of two launches for their times to be compared: grid, block, shared
/// memory, stream, and which programs are in them.
type Alike = ([c_uint; 7], usize, u64);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    /// Parts per million that launches may take longer; 0 for no bound.
    bound: AtomicU32,
    elapsed: OnceLock<Elapsed>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Events that are free, by context.
    ready: HashMap<usize, Vec<Event>>,
    waiting: Vec<Measured>,
    /// By kernel and generation.
    kernels: HashMap<(*const Entry, u64), Pairs>,
}

// SAFETY: entries live as long as the agent, and are only compared here.
unsafe impl Send for State {}

/// An event of ours.
#[derive(Debug, Clone, Copy)]
struct Event(CUevent);

// SAFETY: a handle; the driver does its own locking.
unsafe impl Send for Event {}

/// Begun, in a stream.
#[derive(Debug, Clone, Copy)]
struct Timer {
    context: usize,
    begin: Event,
    end: Event,
}

/// A launch between two events.
#[derive(Debug)]
pub(crate) struct Measured {
    timer: Timer,
    entry: &'static Entry,
    generation: u64,
    sample: Sample,
    alike: Alike,
}

impl Measured {
    /// The original is to run.
    pub(crate) fn is_of_original(&self) -> bool {
        self.sample == Sample::Original
    }
}

/// Times of a kernel's launches.
#[derive(Debug, Default)]
struct Pairs {
    /// One that waits for its neighbour.
    single: HashMap<Alike, (Sample, f32)>,
    /// Milliseconds with and without probes.
    times: Vec<(f32, f32)>,
}

/// What pairs say.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Verdict {
    /// Median of time with probes by time without.
    ratio: f64,
    pairs: usize,
    /// Medians, in microseconds.
    with: f64,
    without: f64,
}

impl Pairs {
    fn add(&mut self, alike: Alike, sample: Sample, time: f32) {
        match self.single.remove(&alike) {
            Some((other, before)) if other != sample => {
                if self.times.len() == KEPT {
                    self.times.remove(0);
                }
                self.times.push(match sample {
                    Sample::Variant => (time, before),
                    Sample::Original => (before, time),
                });
            }
            _ => {
                // Shapes that come once do not pile up.
                if self.single.len() >= KEPT {
                    self.single.clear();
                }
                self.single.insert(alike, (sample, time));
            }
        }
    }

    /// `None` before there are enough.
    fn verdict(&self) -> Option<Verdict> {
        if self.times.len() < ENOUGH {
            return None;
        }
        let of = |value: fn(&(f32, f32)) -> f32| {
            let mut all: Vec<f32> = self.times.iter().map(value).collect();
            all.sort_unstable_by(f32::total_cmp);
            f64::from(all[all.len() / 2])
        };
        Some(Verdict {
            // A clock may see no time at all.
            ratio: of(|(with, without)| with / without.max(f32::MIN_POSITIVE)),
            pairs: self.times.len(),
            with: of(|(with, _)| *with) * 1e3,
            without: of(|(_, without)| *without) * 1e3,
        })
    }
}

impl Verdict {
    fn passes(&self, bound: u32) -> bool {
        self.ratio > 1.0 + f64::from(bound) / 1e6
    }

    fn message(&self, kernel: &str, bound: u32) -> String {
        format!(
            "kernel `{kernel}` runs without probes from here on, and counts as skipped: with them it took {:.2} times as long ({:.1} µs, without {:.1} µs; medians of {} launches each), and `--max-overhead` allows {}%",
            self.ratio,
            self.with,
            self.without,
            self.pairs,
            f64::from(bound) / 1e4
        )
    }
}

/// As what the launch of this number, among those that programs are in, is measured.
fn sample(number: u64) -> Option<Sample> {
    let period = PERIODS[usize::from(number > OFTEN)];
    match number % period {
        // Not the first launch, which may load code.
        2 => Some(Sample::Original),
        3 => Some(Sample::Variant),
        _ => None,
    }
}

impl Watchdog {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Launches may take so many parts per million longer. False if the driver cannot tell the time
    /// between events.
    pub(crate) fn set(&self, bound: u32, elapsed: Option<usize>) -> bool {
        let Some(elapsed) = elapsed else {
            return false;
        };
        // SAFETY: the driver's function of this signature.
        let elapsed = unsafe { std::mem::transmute::<usize, Elapsed>(elapsed) };
        self.elapsed.get_or_init(|| elapsed);
        self.bound.store(bound.max(1), Ordering::Release);
        true
    }

    /// There is a bound.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.bound.load(Ordering::Relaxed) != 0
    }
}

impl Watchdog {
    /// Begins a measurement of a launch of this generation, with these choices of programs, in a
    /// stream of the current context, which is not being captured: if it is its turn, events lie
    /// ready and nobody else is at them.
    #[inline]
    pub(crate) fn measure(
        &self,
        driver: &Driver,
        entry: &'static Entry,
        stream: CUstream,
        shape: &Shape,
        (generation, chosen): (u64, Option<u64>),
    ) -> Option<Measured> {
        if !self.is_on() {
            return None;
        }
        let context = driver.current()?.0 as usize;
        // What has no variant has nothing to compare.
        entry.place(context, generation)?.variant.as_ref()?;
        let chosen = chosen?;
        // Of those that programs are in, so that no choice by number goes round what is measured.
        let sample = sample(entry.candidates.fetch_add(1, Ordering::Relaxed) + 1)?;
        self.begin(
            driver,
            entry,
            (context, stream),
            shape,
            (generation, sample, chosen),
        )
    }

    fn begin(
        &self,
        driver: &Driver,
        entry: &'static Entry,
        (context, stream): (usize, CUstream),
        shape: &Shape,
        (generation, sample, chosen): (u64, Sample, u64),
    ) -> Option<Measured> {
        // An event between launches that may overlap would keep them from it.
        if shape.overlaps {
            return None;
        }
        let timer = {
            let mut state = match self.state.try_lock() {
                Ok(state) => state,
                Err(TryLockError::Poisoned(state)) => state.into_inner(),
                Err(TryLockError::WouldBlock) => return None,
            };
            if state.waiting.len() >= MOST_WAITING {
                return None;
            }
            let ready = state.ready.get_mut(&context).filter(|all| all.len() >= 2)?;
            let (begin, end) = (ready.pop()?, ready.pop()?);
            Timer {
                context,
                begin,
                end,
            }
        };
        let ([gx, gy, gz], [bx, by, bz]) = (shape.grid, shape.block);
        let measured = Measured {
            timer,
            entry,
            generation,
            sample,
            alike: (
                [gx, gy, gz, bx, by, bz, shape.shared],
                stream as usize,
                chosen,
            ),
        };
        match record(driver, measured.timer.begin, stream) {
            true => Some(measured),
            false => {
                self.drop_timer(measured.timer);
                None
            }
        }
    }

    /// The launch was made, of this; or it was not made.
    #[inline]
    pub(crate) fn was_measured(
        &self,
        driver: &Driver,
        measured: Option<Measured>,
        ran: Option<Sample>,
    ) {
        let Some(measured) = measured else { return };
        let stream = measured.alike.1 as CUstream;
        if ran == Some(measured.sample) && record(driver, measured.timer.end, stream) {
            self.lock().waiting.push(measured);
        } else {
            self.drop_timer(measured.timer);
        }
    }

    /// Nothing came of it.
    fn drop_timer(&self, timer: Timer) {
        let mut state = self.lock();
        let ready = state.ready.entry(timer.context).or_default();
        ready.extend([timer.begin, timer.end]);
    }

    /// On the control thread, with a context current: takes in what has happened there, decides,
    /// and makes events. What the user is to be told.
    pub(crate) fn tend(&self, driver: &Driver, context: usize) -> Vec<String> {
        let mut told = Vec::new();
        let dog = self;
        let Some(elapsed) = dog.elapsed.get().filter(|_| dog.is_on()) else {
            return told;
        };
        let api = &driver.api;
        // Launches want the lock, so it is not held in calls of the driver.
        let (own, have): (Vec<Measured>, usize) = {
            let mut state = dog.lock();
            let (own, others) = std::mem::take(&mut state.waiting)
                .into_iter()
                .partition(|measured| measured.timer.context == context);
            state.waiting = others;
            (own, state.ready.get(&context).map_or(0, Vec::len))
        };
        let (mut waiting, mut times, mut free) = (Vec::new(), Vec::new(), Vec::new());
        for measured in own {
            let Timer { begin, end, .. } = measured.timer;
            // SAFETY: an event of ours.
            match unsafe { (api.event_query)(end.0) } {
                sys::NOT_READY => {
                    waiting.push(measured);
                    continue;
                }
                sys::SUCCESS => {
                    let mut time = 0f32;
                    // SAFETY: a writable local, and events that have happened.
                    if unsafe { elapsed(&mut time, begin.0, end.0) } == sys::SUCCESS {
                        times.push((measured, time));
                    }
                }
                // The context has failed: nothing more will be measured in it.
                _ => {}
            }
            free.extend([begin, end]);
        }
        while have + free.len() < READY {
            let mut event = ptr::null_mut();
            // SAFETY: a writable local.
            if unsafe { (api.event_create)(&mut event, 0) } != sys::SUCCESS {
                break;
            }
            free.push(Event(event));
        }
        let mut state = dog.lock();
        state.waiting.extend(waiting);
        state.ready.entry(context).or_default().extend(free);
        for (measured, time) in times {
            let (entry, generation) = (measured.entry, measured.generation);
            let kernel = (ptr::from_ref(entry), generation);
            let pairs = state.kernels.entry(kernel).or_default();
            pairs.add(measured.alike, measured.sample, time);
            told.extend(self.judge(entry, generation, pairs));
        }
        told
    }

    fn judge(&self, entry: &Entry, generation: u64, pairs: &Pairs) -> Option<String> {
        let bound = self.bound.load(Ordering::Relaxed);
        let verdict = pairs.verdict().filter(|verdict| verdict.passes(bound))?;
        // Late pairs of programs that were replaced say nothing of those in force.
        let is_new = entry.too_dear.fetch_max(generation, Ordering::Relaxed) < generation;
        is_new.then(|| verdict.message(&entry.mangled, bound))
    }

    /// A context ends, and its events with it.
    pub(crate) fn forget_timers(&self, context: usize) {
        let mut state = self.lock();
        state.ready.remove(&context);
        let stays = |measured: &Measured| measured.timer.context != context;
        state.waiting.retain(stays);
    }

    /// As [`Watchdog::forget_timers`], where the context goes on without us.
    pub(crate) fn give_timers_back(&self, driver: &Driver, context: usize) {
        let mut state = self.lock();
        let ready = state.ready.remove(&context).unwrap_or_default();
        let waiting = state.waiting.iter().map(|measured| measured.timer);
        let waiting = waiting.filter(|timer| timer.context == context);
        let all: Vec<Event> = waiting
            .flat_map(|timer| [timer.begin, timer.end])
            .chain(ready)
            .collect();
        drop(state);
        self.forget_timers(context);
        for event in all {
            // SAFETY: an event of ours, which nobody has any more; the driver waits for what uses
            // it.
            unsafe { (driver.api.event_destroy)(event.0) };
        }
    }
}

fn record(driver: &Driver, event: Event, stream: CUstream) -> bool {
    // SAFETY: an event of ours, and the application's own stream, which is not being captured.
    unsafe { (driver.api.event_record)(event.0, stream) == sys::SUCCESS }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Alike = ([1, 1, 1, 32, 1, 1, 0], 0, 1);

    #[test]
    fn an_original_and_a_variant_follow_each_other() {
        let all: Vec<(u64, Sample)> = (1..20)
            .filter_map(|number| Some((number, sample(number)?)))
            .collect();
        let (original, variant) = (Sample::Original, Sample::Variant);
        let expected = [(2, original), (3, variant), (10, original), (11, variant)];
        assert_eq!(all[..4], expected);
        let later = (1024..2048).filter(|number| sample(*number).is_some());
        assert_eq!(later.count(), 32);
    }

    #[test]
    fn pairs_are_of_one_shape_and_their_median_decides() {
        let mut pairs = Pairs::default();
        let other: Alike = ([2, 1, 1, 32, 1, 1, 0], 0, 1);
        pairs.add(SHAPE, Sample::Original, 1.0);
        // Not of its shape, and one that has lost its neighbour.
        pairs.add(other, Sample::Variant, 9.0);
        pairs.add(SHAPE, Sample::Original, 0.5);
        pairs.add(SHAPE, Sample::Variant, 0.6);
        assert_eq!(pairs.times, [(0.6, 0.5)]);
        assert_eq!(pairs.verdict(), None);
        for at in 1..ENOUGH {
            // A few that were disturbed do not matter.
            let time = if at % 5 == 0 { 50.0 } else { 0.6 };
            pairs.add(SHAPE, Sample::Variant, time);
            pairs.add(SHAPE, Sample::Original, 0.5);
        }
        let verdict = pairs.verdict().unwrap();
        assert!((verdict.ratio - 1.2).abs() < 1e-6 && verdict.pairs == ENOUGH);
        assert!(verdict.passes(190_000) && !verdict.passes(210_000));
        assert_eq!(
            verdict.message("k", 50_000),
            "kernel `k` runs without probes from here on, and counts as skipped: with them it took 1.20 times as long (600.0 µs, without 500.0 µs; medians of 16 launches each), and `--max-overhead` allows 5%"
        );
        for _ in 0..KEPT {
            pairs.add(SHAPE, Sample::Variant, 0.5);
            pairs.add(SHAPE, Sample::Original, 0.5);
        }
        assert_eq!(pairs.times.len(), KEPT);
        assert!(!pairs.verdict().unwrap().passes(1));
    }
}

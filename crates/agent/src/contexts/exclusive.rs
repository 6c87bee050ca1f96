//! Code comes in, and memory goes, beside an application only while nothing runs.
//!
//! A driver that loads a module, or frees memory, waits for every kernel in the context and lets
//! nobody launch until they have ended (docs/measurements.md). Two kernels that wait for each
//! other, of which one was launched, then wait for ever. An application that does so itself sees to
//! that; of what a thread of ours does it knows nothing. So our threads do it in an *exclusive
//! section*: launches wait at a launch barrier, what was launched before is looked after by a
//! completion event, and once that has passed, the work is done on an empty context, in which it
//! takes a tenth of a millisecond. If kernels do not end soon, those who stand there are let in,
//! one launch each, since what runs may wait for just these; what comes behind them is not. If that
//! does not help either, the launch barrier opens and it is tried later: so whoever waits for whom,
//! the application goes on.
//!
//! On a thread of the application's nothing of this happens: what is loaded there stands beside a
//! load of its own.

use std::cell::Cell;
use std::sync::TryLockError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use warpbpf_driver::{CompletionEvent, Driver, ExclusiveSection};

use crate::device::background::set_background;
use crate::kernels::generation::Flight;
use crate::kernels::stream_name::StreamName;
use crate::runtime::agent::Agent;
use crate::sys::lock::lock;

/// How long the launch barrier is closed at least, and at most.
const SHORTEST: Duration = Duration::from_millis(2);

const LONGEST: Duration = Duration::from_millis(1024);

/// How often, in that time, those who stand there are let in.
const TURNS: u32 = 4;

/// Between two tries launches go on for this many times as long as they waited.
const OPEN: u32 = 2;

/// From the first exclusive section on all launches are seen; those that began before are through
/// by then.
const SLIPPED: Duration = Duration::from_millis(1);

/// For so long it is looked all the time, and then as often.
const SOON: Duration = Duration::from_micros(50);

/// How long a capture is waited for: it takes as long as the host needs to say what is in a graph.
const CAPTURES: Duration = Duration::from_secs(1);

/// How long a thread of ours tries, unless it says so itself.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a thread tries.
#[derive(Debug, Clone, Copy)]
struct Limit {
    /// Each time.
    each: Duration,
    /// In all.
    until: Option<Instant>,
    /// When the tool is gone, too.
    to_the_end: bool,
}

impl Limit {
    fn end(&self) -> Instant {
        let end = Instant::now() + self.each;
        self.until.map_or(end, |until| until.min(end))
    }

    fn is_over(&self, agent: &Agent, end: Instant) -> bool {
        Instant::now() >= end || agent.is_at_exit() || !self.to_the_end && !agent.is_on()
    }
}

thread_local! {
    /// This thread is ours, and works beside the application.
    static BACKGROUND: Cell<Option<(&'static Agent, Limit)>> = const { Cell::new(None) };
    /// It has an exclusive section just now.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// This thread works beside the application while it lives.
#[derive(Debug)]
pub(crate) struct Background(Option<(&'static Agent, Limit)>);

impl Drop for Background {
    fn drop(&mut self) {
        BACKGROUND.set(self.0);
        set_background(self.0.is_some());
    }
}

impl Agent {
    /// The calling thread is ours: it loads and frees when that harms nobody, or not at all. It
    /// takes back what was made, whoever is gone.
    pub(crate) fn work_in_background(&'static self) -> Background {
        self.background(Limit {
            each: PATIENCE,
            until: None,
            to_the_end: true,
        })
    }

    /// The same for a thread that makes something while there is a tool: each call of it is tried
    /// for so long.
    pub(crate) fn work_in_background_for(&'static self, each: Duration) -> Background {
        self.background(Limit {
            each,
            until: None,
            to_the_end: false,
        })
    }

    /// The same, and all of it until then.
    pub(crate) fn work_in_background_until(&'static self, until: Instant) -> Background {
        self.background(Limit {
            each: until.saturating_duration_since(Instant::now()),
            until: Some(until),
            to_the_end: false,
        })
    }

    fn background(&'static self, limit: Limit) -> Background {
        set_background(true);
        Background(BACKGROUND.replace(Some((self, limit))))
    }

    /// A launch by this handle is our business.
    #[inline]
    pub(crate) fn has_launch(&self, handle: usize) -> bool {
        self.table.get(handle).is_some()
            || self.preloaded.is_new(handle)
            || self.launch_barrier.is_used()
    }

    /// No launch that was seen to begin is still on its way to the device.
    pub(crate) fn no_launch_is_under_way(&self) -> bool {
        self.generations.are_left() && self.drain.all_left()
    }

    /// A launch in this stream begins: by the programs that are in force then. It waits while
    /// somebody loads.
    #[inline]
    pub(crate) fn begin_launch(&'static self, stream: StreamName) -> Flight {
        loop {
            let flight = self.generations.enter();
            // In one order with the launch barrier: who closes it sees this launch, or this launch
            // sees it closed.
            if !self.launch_barrier.closed.load(Ordering::SeqCst) || !self.has_to_wait(stream) {
                return flight;
            }
            drop(flight);
            if self.launch_barrier.is_let_in(|| self.is_on()) {
                let flight = self.generations.enter();
                lock(&self.launch_barrier.waiting).let_in -= 1;
                return flight;
            }
        }
    }

    /// What is captured runs later, and a completion event waits for the capture's end.
    #[cold]
    fn has_to_wait(&'static self, stream: StreamName) -> bool {
        self.is_on() && self.graphs.captured(&self.driver, stream).is_none()
    }
}

/// Does the work in an exclusive section in the current context. False if there was none.
fn exclusive_section(agent: &'static Agent, limit: Limit, work: &mut dyn FnMut()) -> bool {
    let barrier = &agent.launch_barrier;
    if warpbpf_faults::strikes("agent/exclusive-section") {
        return false;
    }
    let end = limit.end();
    // Another thread of ours may try for long.
    let mut last = loop {
        match barrier.sections.try_lock() {
            Ok(last) => break last,
            Err(TryLockError::Poisoned(broken)) => break broken.into_inner(),
            Err(TryLockError::WouldBlock) if limit.is_over(agent, end) => return false,
            Err(TryLockError::WouldBlock) => std::thread::sleep(SOON),
        }
    };
    if !barrier.used.swap(true, Ordering::SeqCst) {
        std::thread::sleep(SLIPPED);
    }
    // A completion event of each section's own: others wait for theirs. Without one nothing can
    // be asked.
    let Ok(completion_event) = agent.driver.relaxed(|| agent.driver.new_completion_event()) else {
        let _inside = Inside::enter();
        work();
        return true;
    };
    let (begun, mut done) = (Instant::now(), false);
    for turn in 1.. {
        // As long as was enough the last time, as kernels are as long as they were.
        let hold = (SHORTEST * factor(turn)).max(*last * 2).min(LONGEST);
        match tried(agent, &completion_event, hold, work) {
            Tried::Done => {
                (*last, done) = (begun.elapsed().min(hold), true);
                break;
            }
            // Others come and go all the time.
            Tried::Captured if !agent.graphs.captures.has_one_of(CAPTURES) => {}
            Tried::Captured | Tried::Never => {
                // Nobody can tell what runs then. Loads and frees do captures no harm.
                let _inside = Inside::enter();
                work();
                done = true;
                break;
            }
            Tried::Late => {}
        }
        *last /= 2;
        if limit.is_over(agent, end) {
            break;
        }
        std::thread::sleep((hold * OPEN).min(end.saturating_duration_since(Instant::now())));
    }
    agent.driver.forget(completion_event);
    done
}

/// One try.
fn tried(
    agent: &'static Agent,
    completion_event: &CompletionEvent,
    hold: Duration,
    work: &mut dyn FnMut(),
) -> Tried {
    let barrier = &agent.launch_barrier;
    let begun = Instant::now();
    let _closed = barrier.close();
    let (mut is_there, mut is_captured) = (false, false);
    let mut turns = 1;
    loop {
        if is_there {
            if let Ok(true) = agent.driver.has_passed(completion_event) {
                break;
            }
        } else if barrier.is_empty(|| agent.no_launch_is_under_way()) {
            match agent.driver.relaxed(|| put(agent, completion_event)) {
                Put::Behind => (is_there, is_captured) = (true, false),
                // As without us: the driver waits by itself. Nobody waits at the launch barrier
                // for that.
                Put::Never => return Tried::Never,
                Put::Captured => is_captured = true,
            }
        }
        if begun.elapsed() >= hold / TURNS * turns {
            if turns == TURNS {
                return match is_captured {
                    true => Tried::Captured,
                    false => Tried::Late,
                };
            }
            turns += 1;
            is_there = false;
            barrier.let_in();
        }
        pause(begun);
    }
    let _inside = Inside::enter();
    work();
    Tried::Done
}

/// What came of one try.
enum Tried {
    Done,
    /// Kernels ran all the while.
    Late,
    /// Something was captured all the while.
    Captured,
    /// It cannot be known whether any run.
    Never,
}

/// Where a completion event is.
enum Put {
    Behind,
    /// It would have spoilt a capture.
    Captured,
    /// This driver has none, or it may spoil what nobody knows of: what would be waited for cannot
    /// be known.
    Never,
}

/// This thread has an exclusive section while it lives.
struct Inside;

impl Inside {
    fn enter() -> Inside {
        INSIDE.set(true);
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// Between two looks at what was to be over by now.
fn pause(since: Instant) {
    match since.elapsed() < SOON {
        true => std::hint::spin_loop(),
        false => std::thread::sleep(SOON),
    }
}

/// By how much longer launches wait at the try of this number, from 1: 1, 1, 2, 1, 1, 2, 4, ...
/// Kernels that wait for what waits at the launch barrier ask for many short tries, a long queue
/// for a long one, and nobody knows which it is: this costs at most a little more than to know it
/// (Luby, Sinclair and Zuckerman, 1993).
fn factor(turn: u32) -> u32 {
    let bits = u32::BITS - turn.leading_zeros();
    match turn == (1 << bits) - 1 {
        true => 1 << (bits - 1).min(10),
        false => factor(turn - (1 << (bits - 1)) + 1),
    }
}

/// Puts the completion event behind all of the current context.
fn put(agent: &Agent, completion_event: &CompletionEvent) -> Put {
    let Some(context) = agent.driver.current() else {
        return Put::Never;
    };
    let captures = &agent.graphs.captures;
    // One of which nobody knows would be spoilt.
    if captures.may_hide_some() {
        return Put::Never;
    }
    let _asking = agent.quiet.asking();
    if captures.is_any(&agent.driver) {
        return Put::Captured;
    }
    match agent.driver.record_completion(context, completion_event) {
        Ok(true) => Put::Behind,
        // A context that is broken says so to whoever asks next.
        Ok(false) | Err(_) => Put::Never,
    }
}

/// The calling thread works beside the application, in a context, and has no exclusive section yet.
fn is_needed() -> bool {
    BACKGROUND
        .get()
        .is_some_and(|(agent, _)| !INSIDE.get() && agent.driver.current().is_some())
}

fn open(work: &mut dyn FnMut()) -> bool {
    match BACKGROUND.get() {
        Some((agent, limit)) => exclusive_section(agent, limit, work),
        None => {
            work();
            true
        }
    }
}

/// The driver as our threads have it.
pub(crate) fn with_launch_barrier(driver: Driver) -> Driver {
    driver.with_exclusive_sections(ExclusiveSection { open, is_needed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_short_as_a_rule_and_each_length_comes_again() {
        let factors: Vec<u32> = (1..=31).map(factor).collect();
        let expected = [
            1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8, 1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4,
            8, 16,
        ];
        assert_eq!(factors, expected);
        assert_eq!((factor(2047), factor(4095)), (1024, 1024));
    }
}

//! Which programs are in force: one word that each launch reads once.
//!
//! Programs are replaced by storing that word, so all kernels change at one moment, for all
//! threads, streams and contexts. What a launch runs is of the generation that it read. It notes
//! itself there before it looks for what to run, and looks at the word again: so whoever has stored
//! a new one knows, once nobody is noted in the old one, that no launch comes by it any more.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use warpbpf_session::Session;
use warpbpf_wire::Choice;

use crate::sys::arena::Arena;

/// Counters of launches under way; threads share one that have the same number in it.
const LANES: usize = 16;

/// A set of programs. It lives as long as the agent, because a launch may be looking at it.
#[derive(Debug)]
pub(crate) struct Generation {
    /// From 1.
    pub(crate) number: u64,
    /// Absent until the tool has said what it wants, and if that is no programs.
    pub(crate) session: OnceLock<Arc<Session>>,
    /// Which launches its programs are in, once somebody asked.
    launches: OnceLock<Launches>,
    under_way: [Lane; LANES],
}

/// A counter with a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane(AtomicUsize);

impl Generation {
    fn new(number: u64, session: Option<Arc<Session>>) -> Generation {
        let once = OnceLock::new();
        if let Some(session) = session {
            // It is empty.
            let _ = once.set(session);
        }
        Generation {
            number,
            session: once,
            launches: OnceLock::new(),
            under_way: Default::default(),
        }
    }

    /// Which launches its programs are in.
    #[inline]
    pub(crate) fn launches(&'static self) -> Launches {
        match self.session.get() {
            Some(session) => *self.launches.get_or_init(|| Launches::of(session)),
            None => Launches::All,
        }
    }

    /// No launch is under way that read this one's number. If another is in force, none will be.
    pub(crate) fn is_left(&self) -> bool {
        let none = |lane: &Lane| lane.0.load(Ordering::SeqCst) == 0;
        self.under_way.iter().all(none)
    }
}

/// The one that is in force.
#[derive(Debug)]
pub(crate) struct Generations {
    all: Arena<Generation>,
    now: AtomicPtr<Generation>,
    /// The one that was before it, or is about to be.
    before: AtomicPtr<Generation>,
}

/// A launch under way.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) generation: &'static Generation,
    lane: usize,
}

impl Drop for Flight {
    fn drop(&mut self) {
        let lane = &self.generation.under_way[self.lane];
        lane.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Launches that were under way at some time. Others begin meanwhile, so all counters are never
/// zero at once where many threads launch; but a counter that was zero once since has none of
/// those.
#[derive(Debug)]
pub(crate) struct Begun(Vec<&'static Lane>);

impl Begun {
    /// All of them are over.
    pub(crate) fn are_over(&mut self) -> bool {
        self.0.retain(|lane| lane.0.load(Ordering::SeqCst) != 0);
        self.0.is_empty()
    }
}

impl Default for Generations {
    fn default() -> Generations {
        let all = Arena::default();
        // SAFETY: generations are a part of an agent.
        let first = ptr::from_ref(unsafe { all.keep(Generation::new(1, None)) }).cast_mut();
        Generations {
            all,
            now: AtomicPtr::new(first),
            before: AtomicPtr::new(first),
        }
    }
}

impl Generations {
    /// The one in force now.
    #[inline]
    pub(crate) fn now(&self) -> &'static Generation {
        // SAFETY: it lives as long as the agent.
        unsafe { &*self.now.load(Ordering::SeqCst) }
    }

    /// A launch begins: by the generation that is in force now.
    #[inline]
    pub(crate) fn enter(&self) -> Flight {
        let lane = lane();
        loop {
            let generation = self.now();
            // In one order with the word: who changes it sees this launch, or this launch sees it
            // changed.
            generation.under_way[lane].0.fetch_add(1, Ordering::SeqCst);
            let flight = Flight { generation, lane };
            if ptr::eq(self.now(), generation) {
                return flight;
            }
        }
    }

    /// Launches from now on are of the session's programs. The one before.
    pub(crate) fn switch(&self, session: Arc<Session>) -> &'static Generation {
        self.switch_to(Generation::new(session.generation(), Some(session)))
    }

    /// One thread at a time does this.
    fn switch_to(&self, next: Generation) -> &'static Generation {
        // SAFETY: generations are a part of an agent.
        let next = unsafe { self.all.keep(next) };
        let before = self.now();
        // Who sees the next one in force sees this one here.
        (self.before).store(ptr::from_ref(before).cast_mut(), Ordering::SeqCst);
        (self.now).store(ptr::from_ref(next).cast_mut(), Ordering::SeqCst);
        before
    }

    /// The launches that are under way now.
    pub(crate) fn begun(&self) -> Begun {
        // SAFETY: it lives as long as the agent.
        let before: &'static Generation = unsafe { &*self.before.load(Ordering::SeqCst) };
        let lanes = [before, self.now()].map(|generation| generation.under_way.iter());
        Begun(lanes.into_iter().flatten().collect())
    }

    /// No launch is under way by the one in force, or by the one before it. Where launches are kept
    /// from beginning, none will be.
    pub(crate) fn are_left(&self) -> bool {
        // SAFETY: it lives as long as the agent.
        let before = || unsafe { &*self.before.load(Ordering::SeqCst) };
        self.now().is_left() && before().is_left()
    }
}

/// The calling thread's counter.
fn lane() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static LANE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % LANES;
    }
    LANE.with(|lane| *lane)
}

/// Which launches the programs of a generation are in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Launches {
    All,
    /// All programs in these.
    Same(&'static Choice),
    /// Each program in its own: the variant of a kernel knows.
    Each,
}

impl Launches {
    pub(crate) fn of(session: &'static Session) -> Launches {
        let all = session.choices().all(Choice::is_all);
        match session.common_choice() {
            _ if all => Launches::All,
            Some(choice) => Launches::Same(choice),
            None => Launches::Each,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use super::*;

    #[test]
    fn a_generation_is_left_when_its_launches_are_over() {
        let generations = Generations::default();
        let flight = generations.enter();
        assert_eq!(flight.generation.number, 1);
        let before = generations.switch_to(Generation::new(2, None));
        assert!(!before.is_left() && !generations.are_left());
        assert_eq!(generations.enter().generation.number, 2);
        drop(flight);
        assert!(before.is_left() && generations.are_left());
        let _flight = generations.enter();
        assert!(!generations.are_left());
    }

    #[test]
    fn launches_that_begin_later_are_not_waited_for() {
        let generations = Generations::default();
        let first = generations.enter();
        let mut begun = generations.begun();
        assert!(!begun.are_over());
        drop(first);
        assert!(begun.are_over());
        // Whoever launches without a pause does not hold it up any more.
        let _later = generations.enter();
        assert!(begun.are_over());
        generations.switch_to(Generation::new(2, None));
        // One of the generation before counts, too.
        assert!(!generations.begun().are_over());
    }

    #[test]
    fn nobody_launches_by_what_was_left() {
        // What a launch would use: set to the generation's number, and to 0 once that was left.
        let alive: Vec<AtomicU64> = (0..2000).map(AtomicU64::new).collect();
        let generations = Generations::default();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while !stop.load(Ordering::Acquire) {
                        let flight = generations.enter();
                        let number = flight.generation.number;
                        assert!(number >= last, "never one that was before");
                        assert_eq!(alive[number as usize].load(Ordering::Relaxed), number);
                        last = number;
                    }
                });
            }
            for number in 2..2000 {
                let before = generations.switch_to(Generation::new(number, None));
                while !before.is_left() {
                    std::hint::spin_loop();
                }
                alive[before.number as usize].store(0, Ordering::Relaxed);
            }
            stop.store(true, Ordering::Release);
        });
    }
}

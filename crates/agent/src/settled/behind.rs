//! Events of ours behind launches whose streams nobody can ask later: the stream of each thread (`CU_STREAM_PER_THREAD`), which only that thread
//! can name, and streams that the application destroys with work in them. Any thread can ask an event.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use warpbpf_driver::Context;
use warpbpf_driver::sys::{self, CUevent, CUstream};

use crate::agent::Agent;
use crate::launch::PER_THREAD_STREAM;
use crate::lives::{LiveState, tried};
use crate::lock::lock;

/// Streams of threads that are kept in mind at once, in all contexts.
const MOST: usize = 4096;
/// The name of all streams that were destroyed.
const DESTROYED: usize = usize::MAX;

type Key = (usize, usize);

/// By context and the stream's name.
#[derive(Debug, Default)]
pub(super) struct Behind(RwLock<BTreeMap<Key, Arc<Mutex<Marks>>>>);

/// What is behind launches in a stream.
#[derive(Debug, Default)]
struct Marks {
    /// Launches that an event will be put behind.
    under_way: u32,
    /// Events that were not seen to have happened, with their numbers; the last one moves on with each launch.
    events: VecDeque<(u64, Event)>,
    next: u64,
    /// Somebody waits for the last one, so that it stays where it is.
    stays: bool,
    /// There is none behind the last launch.
    lost: bool,
}

/// An event of ours, of the context of its stream.
#[derive(Debug, Clone, Copy)]
struct Event(CUevent);

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Send for Event {}

impl Marks {
    /// Puts an event behind what is in a stream of the current context.
    fn mark(&mut self, agent: &Agent, stream: CUstream) {
        let api = &agent.driver.api;
        let last = self.events.back().filter(|_| !self.stays);
        let event = last.map(|(_, event)| *event).or_else(|| {
            let mut event = std::ptr::null_mut();
            // SAFETY: a writable local.
            let made = unsafe { (api.event_create)(&mut event, sys::EVENT_DISABLE_TIMING) };
            (made == sys::SUCCESS).then(|| {
                self.events.push_back((self.next, Event(event)));
                self.next += 1;
                self.stays = false;
                Event(event)
            })
        });
        // SAFETY: an event of ours and a stream of its context.
        let marked = |Event(event)| unsafe { (api.event_record)(event, stream) } == sys::SUCCESS;
        // Launches in a stream end in their order, so one that is marked stands for those before.
        self.lost = !event.is_some_and(marked);
    }

    /// Forgets what has happened. The context is current.
    fn look(&mut self, agent: &Agent) {
        let api = &agent.driver.api;
        self.events.retain(|(_, Event(event))| {
            // SAFETY: an event of ours, whose context is alive.
            let waits = unsafe { (api.event_query)(*event) } == sys::NOT_READY;
            if !waits {
                // SAFETY: as above, and nobody else knows it. It costs its memory if it stays.
                unsafe { (api.event_destroy)(*event) };
            }
            waits
        });
    }

    fn is_empty(&self) -> bool {
        self.under_way == 0 && self.events.is_empty() && !self.lost
    }
}

/// A launch in the stream of this thread; when this is dropped, an event is put behind it.
#[derive(Debug)]
pub(crate) struct Launch {
    agent: &'static Agent,
    marks: Arc<Mutex<Marks>>,
}

impl Drop for Launch {
    fn drop(&mut self) {
        let mut marks = lock(&self.marks);
        marks.under_way -= 1;
        marks.mark(self.agent, PER_THREAD_STREAM as CUstream);
    }
}

impl Behind {
    /// `of` those of a stream; `None` if there are too many streams.
    fn with<T>(&self, key: Key, of: impl FnOnce(&Arc<Mutex<Marks>>) -> T) -> Option<T> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(marks) = known.get(&key) {
            return Some(of(marks));
        }
        drop(known);
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        (all.len() < MOST).then(|| of(all.entry(key).or_default()))
    }

    /// This thread is about to launch in its own stream; `None` if there are too many.
    pub(super) fn launches(&self, agent: &'static Agent, key: Key) -> Option<Launch> {
        self.with(key, |marks| {
            lock(marks).under_way += 1;
            let marks = Arc::clone(marks);
            Launch { agent, marks }
        })
    }

    /// A stream with work in it is about to be destroyed; false if its end will not be known.
    pub(super) fn destroyed(&self, agent: &Agent, (context, stream): Key) -> bool {
        let mark = |marks: &Arc<Mutex<Marks>>| {
            let mut marks = lock(marks);
            marks.look(agent);
            // Of another stream.
            marks.stays = true;
            marks.mark(agent, stream as CUstream);
            !std::mem::take(&mut marks.lost)
        };
        let marked = || self.with((context, DESTROYED), mark);
        let marked = agent.driver.within(Context(context as *mut _), marked);
        marked.flatten() == Some(true)
    }

    /// A context has ended, and all events in it.
    pub(super) fn context_gone(&self, context: usize) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(of, _), _| *of != context);
    }

    /// All that is to be waited for.
    pub(super) fn waits(&self) -> Vec<Wait> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let wait = |key: &Key| Wait {
            key: *key,
            last: None,
        };
        all.keys().map(wait).collect()
    }

    /// What nobody waits for any more goes.
    fn tidy(&self, key: Key) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Launches find it under the lock that is held here.
        if all.get(&key).is_some_and(|marks| lock(marks).is_empty()) {
            all.remove(&key);
        }
    }
}

/// Launches in a stream that are waited for.
#[derive(Debug)]
pub(super) struct Wait {
    key: Key,
    /// The event behind them, once it is known which.
    last: Option<u64>,
}

impl Wait {
    /// They have ended, or their context has.
    pub(super) fn is_over(&mut self, agent: &Agent, behind: &Behind) -> bool {
        let context = Context(self.key.0 as *mut _);
        let Some(shard) = agent.lives.of(context) else {
            return true;
        };
        // The context cannot end while this is held.
        let Some(state) = tried(shard.state.try_read()) else {
            return false;
        };
        match &*state {
            LiveState::Here(_) => {}
            LiveState::NotYet | LiveState::Gone(_) => return true,
        }
        let looked = || agent.driver.relaxed(|| self.look(agent, behind));
        agent.driver.within(context, looked).unwrap_or(true)
    }

    fn look(&mut self, agent: &Agent, behind: &Behind) -> bool {
        let known = {
            let all = behind.0.read().unwrap_or_else(PoisonError::into_inner);
            all.get(&self.key).cloned()
        };
        let Some(marks) = known else { return true };
        let mut marks = lock(&marks);
        if self.last.is_none() {
            if marks.under_way > 0 || marks.lost {
                return false;
            }
            marks.stays = true;
            self.last = Some(marks.next);
        }
        marks.look(agent);
        let waits = |last| marks.events.iter().any(|(number, _)| *number < last);
        let is_over = !self.last.is_some_and(waits);
        let is_empty = marks.is_empty();
        drop(marks);
        if is_empty {
            behind.tidy(self.key);
        }
        is_over
    }
}

//! The device side of the session, context by context: maps, variants and shared memory live and
//! die with one.
//!
//! Each has locks of its own, so that a thread which waits for the kernels of a context that ends,
//! or makes the maps of a new one, holds up nobody in another. The list itself is locked for
//! moments only.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

use warpbpf_driver::{CompletionEvent, Context};
use warpbpf_session::{Growth, Live};
use warpbpf_wire::SharedWriter;

use crate::device::background::Ours;
use crate::device::pump::{More, Pump};
use crate::sys::descriptors::{self, OwnDescriptor};
use crate::sys::lock::{lock, tried};

/// Contexts that get maps, over the life of the process: the tool keeps the memory of each.
pub(crate) const MOST: u32 = 64;

/// What there is in a context.
#[derive(Debug, Default)]
pub(crate) enum ContextState {
    /// Nothing yet: the context is not alive, or nothing was loaded in it.
    #[default]
    NotYet,
    /// Maps.
    Here(Box<Live>),
    /// Nothing, and nothing will come, for this reason.
    Gone(&'static str),
}

/// A context of the application.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) context: Context,
    pub(crate) state: RwLock<ContextState>,
    /// What takes data out of it. Held while data are copied: the application's threads stay away
    /// from it.
    pub(crate) pump: Mutex<Option<Pump>>,
    /// The number by which the tool knows its maps, once it has some.
    pub(crate) number: OnceLock<u32>,
    /// The memory that it shares with the tool, once more: that of its first maps, then of those
    /// that came.
    memory: Mutex<Vec<Option<OwnDescriptor>>>,
    /// What was made for programs that come into force next.
    pub(crate) growing: Mutex<Option<Growing>>,
    /// Held by the thread that sees to that.
    pub(crate) turn: Mutex<()>,
    /// To be put behind what is launched there. None where the driver made none, or it was given
    /// back.
    pub(crate) completion_event: RwLock<Option<CompletionEvent>>,
    /// Images that had been loaded when it was last looked for some that wait for it.
    pub(crate) seen: AtomicU64,
    /// Who of us makes something in it.
    pub(crate) ours: Ours,
}

impl Shard {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, ContextState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, ContextState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What its completion event was until now.
    pub(crate) fn set_completion_event(
        &self,
        completion_event: Option<CompletionEvent>,
    ) -> Option<CompletionEvent> {
        let mut there = self
            .completion_event
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *there, completion_event)
    }

    /// Keeps memory that it shares with the tool, for when its context has ended.
    pub(crate) fn share(&self, memory: &OwnDescriptor) {
        let again = !warpbpf_faults::strikes("agent/memory-again");
        let again = again.then(|| descriptors::again(memory)).flatten();
        lock(&self.memory).push(again);
    }

    /// Nobody will look at that any more.
    pub(crate) fn keep_no_memory(&self) {
        lock(&self.memory).clear();
    }

    /// What it shared: of maps that cannot be read any more, and those behind them, nothing is
    /// left.
    pub(crate) fn left(&self) -> Option<SharedWriter> {
        let memory = std::mem::take(&mut *lock(&self.memory));
        let mut parts = memory
            .iter()
            .map_while(|part| SharedWriter::reopen(part.as_ref()?.get()?).ok());
        let first = parts.next()?;
        Some(parts.fold(first, |mut all, part| {
            all.append(part);
            all
        }))
    }

    pub(crate) fn pump(&self) -> MutexGuard<'_, Option<Pump>> {
        self.pump.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` with what is there; it cannot go away meanwhile. Where the context is about to
    /// end or to get its maps, which may take as long as its kernels run, `wait` says whether to
    /// wait for that.
    pub(crate) fn with<T>(
        &self,
        wait: bool,
        work: impl FnOnce(u32, &mut Pump, &Live) -> T,
    ) -> Option<T> {
        let state = match tried(self.state.try_read()) {
            Some(state) => state,
            None if wait => self.read(),
            None => return None,
        };
        let ContextState::Here(live) = &*state else {
            return None;
        };
        let mut pump = self.pump();
        Some(work(*self.number.get()?, pump.as_mut()?, live))
    }

    /// What is there. None where that would be to wait for a thread of ours.
    pub(crate) fn look(&self) -> Option<RwLockReadGuard<'_, ContextState>> {
        self.ours.unless_here(|| tried(self.state.try_read()))
    }

    /// The same, to put something there. None where there is something by now, too.
    pub(crate) fn look_to_make(&self) -> Option<RwLockWriteGuard<'_, ContextState>> {
        let look = || {
            let empty = |state: &ContextState| matches!(state, ContextState::NotYet);
            if let Some(state) = tried(self.state.try_write()) {
                return Some(empty(&state).then_some(state));
            }
            // Whoever uses what is there may do so for long.
            let there = tried(self.state.try_read())?;
            (!empty(&there)).then_some(None)
        };
        self.ours.unless_here(look).flatten()
    }
}

/// A context that has ended, and the memory that it shared. Who uses that has
/// [`ContextRegistry::operate`].
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) number: u32,
    pub(crate) memory: Mutex<SharedWriter>,
    /// Maps of which it left nothing.
    pub(crate) silent: Mutex<BTreeSet<usize>>,
}

/// All contexts that were looked at and have not ended.
#[derive(Debug, Default)]
pub(crate) struct ContextRegistry {
    all: RwLock<Vec<Arc<Shard>>>,
    /// How many were made so far: the number of the next.
    pub(crate) made: AtomicU32,
    /// Held while one gets its number.
    pub(crate) numbering: Mutex<()>,
    /// Held while the first maps are made, so that none but them are the first.
    pub(crate) founding: Mutex<()>,
    /// Threads of ours that may be at that.
    pub(crate) founders: Ours,
    /// What those that have ended left, by their numbers. Replaced and not changed, so that nothing
    /// is allocated while it is locked: a program on the CPU may run inside an allocator.
    ended: Mutex<Arc<Vec<Arc<Ended>>>>,
    /// Held while that is replaced.
    ending: Mutex<()>,
    /// Held by who reads and changes what they left, and only ever tried for: a program on the CPU
    /// may run inside an allocator, for which the one who holds it may wait.
    operating: Mutex<()>,
}

impl ContextRegistry {
    /// Those that there are now. In the order in which they were seen, so that the first maps come
    /// first.
    pub(crate) fn all(&self) -> Vec<Arc<Shard>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.clone()
    }

    /// The same; `None` if somebody changes the list just now.
    pub(crate) fn try_all(&self) -> Option<Vec<Arc<Shard>>> {
        tried(self.all.try_read()).map(|all| all.clone())
    }

    /// The one of a context.
    pub(crate) fn of(&self, context: Context) -> Option<Arc<Shard>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|s| s.context == context).cloned()
    }

    /// The same, noted now if it was not before.
    pub(crate) fn of_or_new(&self, context: Context) -> Arc<Shard> {
        if let Some(known) = self.of(context) {
            return known;
        }
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.iter().find(|s| s.context == context) {
            return Arc::clone(known);
        }
        let new = Arc::new(Shard {
            context,
            state: RwLock::default(),
            pump: Mutex::default(),
            number: OnceLock::new(),
            memory: Mutex::default(),
            growing: Mutex::default(),
            turn: Mutex::default(),
            completion_event: RwLock::default(),
            seen: AtomicU64::new(0),
            ours: Ours::default(),
        });
        all.push(Arc::clone(&new));
        new
    }

    /// How many contexts have had maps.
    pub(crate) fn made(&self) -> u32 {
        self.made.load(Ordering::SeqCst)
    }

    /// The memory of those that have ended, in the order of their numbers.
    pub(crate) fn ended(&self) -> Arc<Vec<Arc<Ended>>> {
        Arc::clone(&lock(&self.ended))
    }

    /// Has what they left for itself; `None` if another thread has it just now.
    pub(crate) fn operate(&self) -> Option<MutexGuard<'_, ()>> {
        tried(self.operating.try_lock())
    }

    pub(crate) fn add_ended(&self, number: u32, shared: SharedWriter) {
        let _ending = lock(&self.ending);
        let before = Arc::clone(&lock(&self.ended));
        let mut all = Vec::clone(&before);
        all.push(Arc::new(Ended {
            number,
            memory: Mutex::new(shared),
            silent: Mutex::default(),
        }));
        all.sort_by_key(|ended| ended.number);
        let all = Arc::new(all);
        let _before = std::mem::replace(&mut *lock(&self.ended), all);
    }

    pub(crate) fn remove(&self, context: Context) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|shard| shard.context != context);
    }

    /// At the end of the process: those whose locks nobody holds.
    pub(crate) fn try_each(&self, mut work: impl FnMut(&Live)) {
        let Ok(all) = self.all.try_read() else { return };
        for shard in all.iter() {
            if let Ok(state) = shard.state.try_read()
                && let ContextState::Here(live) = &*state
            {
                work(live);
            }
        }
    }
}

/// What was made in a context for programs that are not in force yet.
#[derive(Debug)]
pub(crate) struct Growing {
    /// Of the programs.
    pub(crate) generation: u64,
    pub(crate) growth: Growth,
    /// Memory that is shared with the tool, if some of the maps are copied there.
    pub(crate) more: Option<(More, OwnDescriptor)>,
}

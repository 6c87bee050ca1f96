//! The device side of the session, context by context: maps, variants and shared memory live and die with one.
//!
//! Each has locks of its own, so that a thread which waits for the kernels of a context that ends, or makes the maps of a
//! new one, holds up nobody in another. The list itself is locked for moments only.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
    TryLockError,
};

use warpbpf_driver::sys::CUcontext;
use warpbpf_driver::{CompletionEvent, Context};
use warpbpf_session::{Calls, Live, Session};
use warpbpf_wire::{NoteLevel, SharedWriter, ToTool};

use crate::agent::{Absent, Agent, Unmade};
use crate::background::Ours;
use crate::descriptors::OwnDescriptor;
use crate::drain::NotDrained;
use crate::growth::Growing;
use crate::handshake::{context_info, ready};
use crate::lock::lock;
use crate::pump::{self, Pump};
use crate::{drain, memory, modules, timeline};

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
    /// What takes data out of it. Held while data are copied: the application's threads stay away from it.
    pub(crate) pump: Mutex<Option<Pump>>,
    /// The number by which the tool knows its maps, once it has some.
    pub(crate) number: OnceLock<u32>,
    /// The memory that it shares with the tool, once more: that of its first maps, then of those that came.
    memory: Mutex<Vec<Option<OwnDescriptor>>>,
    /// What was made for programs that come into force next.
    pub(crate) growing: Mutex<Option<Growing>>,
    /// Held by the thread that sees to that.
    pub(crate) turn: Mutex<()>,
    /// To be put behind what is launched there. None where the driver made none, or it was given back.
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

    fn write(&self) -> RwLockWriteGuard<'_, ContextState> {
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
        let again = again.then(|| memory.again()).flatten();
        lock(&self.memory).push(again);
    }

    /// Nobody will look at that any more.
    pub(crate) fn keep_no_memory(&self) {
        lock(&self.memory).clear();
    }

    /// What it shared: of maps that cannot be read any more, and those behind them, nothing is left.
    fn left(&self) -> Option<SharedWriter> {
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

    /// Runs `work` with what is there; it cannot go away meanwhile. Where the context is about to end or to get its maps, which
    /// may take as long as its kernels run, `wait` says whether to wait for that.
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
    made: AtomicU32,
    /// Held while one gets its number.
    numbering: Mutex<()>,
    /// Held while the first maps are made, so that none but them are the first.
    pub(crate) founding: Mutex<()>,
    /// Threads of ours that may be at that.
    pub(crate) founders: Ours,
    /// What those that have ended left, by their numbers. Replaced and not changed, so that nothing is allocated while it is
    /// locked: a program on the CPU may run inside an allocator.
    ended: Mutex<Arc<Vec<Arc<Ended>>>>,
    /// Held while that is replaced.
    ending: Mutex<()>,
    /// Held by who reads and changes what they left, and only ever tried for: a program on the CPU may run inside an allocator, for which
    /// the one who holds it may wait.
    operating: Mutex<()>,
}

/// What a lock that is only tried gives.
pub(crate) fn tried<T>(result: Result<T, TryLockError<T>>) -> Option<T> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl ContextRegistry {
    /// Those that there are now. In the order in which they were seen, so that the first maps come first.
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
    fn of_or_new(&self, context: Context) -> Arc<Shard> {
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

    fn add_ended(&self, number: u32, shared: SharedWriter) {
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

    fn remove(&self, context: Context) {
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

/// Who answers calls to maps on the host.
fn calls_of(state: &ContextState) -> Option<Arc<Calls>> {
    match state {
        ContextState::Here(live) => live.calls().cloned(),
        ContextState::NotYet | ContextState::Gone(_) => None,
    }
}

impl Agent {
    /// Runs `work` with what is in the current context, made now if it does not exist yet.
    ///
    /// # Errors
    /// [`Absent`]: then `work` did not run.
    pub(crate) fn with_live<T>(
        &'static self,
        session: &Arc<Session>,
        work: impl FnOnce(&Live) -> T,
    ) -> Result<T, Absent> {
        let context = self.driver.current().ok_or(Absent::NoContext)?;
        let shard = self.context_registry.of_or_new(context);
        let make = || {
            let look = || shard.look().ok_or(Absent::Busy);
            let not_yet = matches!(*look()?, ContextState::NotYet);
            if not_yet && self.context_is_usable() {
                // Not those of programs that may never come into force.
                let in_force = self.generations.now().session.get();
                self.make_live(in_force.unwrap_or(session), &shard);
                if let ContextState::Here(live) = &*look()? {
                    self.catch_up(&shard, live);
                }
            }
            match &*look()? {
                ContextState::Here(live) => Ok(work(live)),
                ContextState::NotYet => Err(Absent::NoContext),
                ContextState::Gone(why) => Err(Absent::Gone(why)),
            }
        };
        let here = || (shard.ours).make(make, || modules::instrument_pending(self));
        self.context_registry
            .founders
            .make(here, || self.instrument_elsewhere())
    }

    /// Instruments what waits in contexts that have no maps yet because their threads were turned away.
    pub(crate) fn instrument_elsewhere(&'static self) {
        let waits = |shard: &Arc<Shard>| matches!(*shard.read(), ContextState::NotYet);
        for shard in self
            .context_registry
            .all()
            .iter()
            .filter(|shard| waits(shard))
        {
            self.driver
                .within(shard.context, || modules::instrument_pending(self));
        }
    }

    /// Why a kernel runs without probes in a context. None where that is about to change.
    pub(crate) fn why_nothing_in(&self, context: Option<usize>) -> Option<&'static str> {
        let nothing = "nothing was loaded there through a call that is hooked";
        let context = context.map(|context| Context(context as CUcontext));
        let Some(shard) = context.and_then(|c| self.context_registry.of(c)) else {
            return Some(nothing);
        };
        Some(match &*shard.look()? {
            ContextState::Gone(why) => why,
            ContextState::Here(_) if shard.ours.is_here() => return None,
            ContextState::Here(_) => "its image was not instrumented there",
            ContextState::NotYet => nothing,
        })
    }

    /// A context is current and alive. The runtime makes a primary context current before it is retained, and until then
    /// everything in it fails as if it were destroyed: the next occasion comes.
    fn context_is_usable(&self) -> bool {
        const CONTEXT_IS_DESTROYED: i32 = 709;
        if warpbpf_faults::strikes("agent/context-asleep") {
            return false;
        }
        match self.driver.relaxed(|| self.driver.stream()) {
            Ok(stream) => {
                // A stream too many costs nothing but its memory.
                let _ = self.driver.destroy(stream);
                true
            }
            Err(error) => error.code != CONTEXT_IS_DESTROYED,
        }
    }

    fn make_live(&'static self, session: &Arc<Session>, shard: &Shard) {
        // Nobody is to wait while files are read.
        let probes = crate::uprobe::prepare(self, session);
        let Some(mut state) = shard.look_to_make() else {
            return;
        };
        if self.context_registry.made() >= MOST || warpbpf_faults::strikes("agent/contexts") {
            *state = ContextState::Gone("64 contexts have had maps, and no more get any");
            return;
        }
        // Who comes second meanwhile waits for the number, and not for kernels: there were none with programs.
        let founding = match self.context_registry.made() {
            0 => {
                match (self.context_registry.founders)
                    .unless_here(|| tried(self.context_registry.founding.try_lock()))
                {
                    Some(founding) => Some(founding),
                    None => return,
                }
            }
            _ => None,
        };
        let first = self.context_registry.made() == 0;
        let _founding = founding.filter(|_| first);
        let ring = self.ring_bytes();
        let context = shard.context.0 as usize;
        let made = self.take_device_memory(context, session).map_err(Unmade);
        let made = made.and_then(|()| {
            Live::new_with(&self.driver, Arc::clone(session), first, |live| {
                Pump::new(live, ring, &self.files).map_err(Unmade::from)
            })
        });
        match made {
            Ok((live, (pump, fd))) => {
                self.announce(session, shard, &live, pump, fd);
                memory::publish_all(self, &live);
                if shard.number.get() != Some(&0) {
                    // Streams are asked with one context current, and are of several now.
                    self.quiet.give_up();
                } else if live.compactable().next().is_some() {
                    self.quiet.watch();
                }
                if let Some(calls) = live.calls()
                    && let Err(error) = crate::calls::start(Arc::clone(calls))
                {
                    self.note(
                        NoteLevel::Warning,
                        format!("nobody answers calls to maps on the host, they will time out: no thread could be started ({error})"),
                    );
                }
                shard.set_completion_event(
                    self.driver
                        .relaxed(|| self.driver.new_completion_event())
                        .ok(),
                );
                *state = ContextState::Here(Box::new(live));
                // They are the process's, and see all contexts.
                if shard.number.get() == Some(&0) {
                    crate::uprobe::install(self, session, probes);
                }
                // Who makes variants waits for `state`: a launch that begins when there is one finds events.
                if let (Some(timeline), Some(number)) = (timeline::of(self), shard.number.get()) {
                    timeline.open(self, shard.context, *number);
                }
            }
            Err(Unmade(message)) => {
                self.bound.give_back(context);
                *state = ContextState::Gone("its maps could not be made");
                if first {
                    self.send(ToTool::Refused { message }, None);
                    self.table.close();
                } else {
                    self.note(
                        NoteLevel::Warning,
                        format!("kernels of a further context (on device {}) run without probes: its maps could not be made: {message}", self.driver.current_device().unwrap_or(-1)),
                    );
                }
            }
        }
    }

    /// Gives maps their number and tells the tool of them, in this order for all.
    fn announce(
        &'static self,
        session: &Session,
        shard: &Shard,
        live: &Live,
        mut pump: Pump,
        fd: OwnDescriptor,
    ) {
        let numbering = lock(&self.context_registry.numbering);
        let number = self.context_registry.made.fetch_add(1, Ordering::SeqCst);
        let context = context_info(self, number);
        let message = match number {
            0 => ToTool::Ready(ready(session, context)),
            _ => ToTool::Context(context),
        };
        shard.share(&fd);
        self.send(message, Some(fd));
        if !self.is_on() {
            // The tool has gone meanwhile.
            shard.keep_no_memory();
        }
        // Launches may follow at once, and somebody look for what they do.
        self.wake();
        drop(numbering);
        let locked = self.driver.relaxed(|| pump.lock_pages(&self.driver, live));
        if let Err(error) = locked {
            self.note(
                NoteLevel::Warning,
                format!("events come home more slowly: their memory cannot be locked ({error})"),
            );
        }
        shard.number.get_or_init(|| number);
        pump.is_of(number, self.launches.get());
        *shard.pump() = Some(pump);
    }

    /// Waits for the kernels in a context that ends, or whose process does, and which is current: whatever is captured there ends, too.
    pub(crate) fn wait_at_end(&self) -> Result<(), NotDrained> {
        let wait = || self.driver.relaxed(|| self.driver.synchronize());
        // What fails once may work again.
        wait().or_else(|_| wait()).map_err(NotDrained::Driver)
    }

    /// Brings everything home from a context, which is current and whose kernels were waited for,
    /// as `waited` says: those of `before` launches with programs at least.
    pub(crate) fn bring_home(
        &self,
        live: &Live,
        pump: &mut Pump,
        (before, waited): (u64, Result<(), NotDrained>),
    ) {
        let ended = waited.is_ok();
        let kernels_ran = drain::kernels_ran(&waited);
        // A broken context has nothing more to give; what was copied before stays.
        if let Err(why) = waited {
            self.note(
                NoteLevel::Warning,
                format!("what is shown may be too old, the kernels that ran last were not waited for: {why}"),
            );
        }
        if let Some(timeline) = timeline::of(self) {
            timeline.turn(self, live.context(), true);
        }
        let left = pump::empty(&self.driver, live, pump);
        pump.came_home(live, before, kernels_ran);
        if ended && left.stuck > 0 {
            self.note(
                NoteLevel::Warning,
                format!(
                    "{} bytes of rings are lost: threads claimed room and ended before they wrote it, \
                     and what came behind it on their multiprocessors could not be read",
                    left.stuck
                ),
            );
        }
        if !left.stale.is_empty() {
            self.note(
                NoteLevel::Warning,
                format!(
                    "what is shown of these maps is too old, they could not be copied at the end: `{}`",
                    left.stale.join("`, `")
                ),
            );
        }
        if let Some(error) = left.unread {
            self.note(
                NoteLevel::Warning,
                format!("the last events are lost, they could not be copied: {error}"),
            );
        }
    }

    /// Before a context ends: waits for its kernels and brings everything home, on this thread, then runs `end`. What is in
    /// it is gone if `ended` says so afterwards.
    pub(crate) fn context_ends<T>(
        &self,
        context: Context,
        end: impl FnOnce() -> T,
        ended: impl FnOnce(&T) -> bool,
    ) -> T {
        self.end_context(context, true, end, ended)
    }

    /// Runs `end`, after which a context may be gone, without having waited for its kernels. If `ended` says so, nothing in it
    /// may be called any more; who answers calls to the host stands still until that is known.
    pub(crate) fn context_may_end<T>(
        &self,
        context: Context,
        end: impl FnOnce() -> T,
        ended: impl FnOnce(&T) -> bool,
    ) -> T {
        self.end_context(context, false, end, ended)
    }

    fn end_context<T>(
        &self,
        context: Context,
        wait: bool,
        end: impl FnOnce() -> T,
        ended: impl FnOnce(&T) -> bool,
    ) -> T {
        let Some(shard) = self.context_registry.of(context) else {
            let result = end();
            if ended(&result) {
                self.forget_context(context.0 as usize);
            }
            return result;
        };
        let state = match (wait, tried(shard.state.try_write())) {
            (_, Some(state)) => Some(state),
            (true, None) => Some(shard.write()),
            // Who loads code there may wait for kernels, and those for what the application does next: a release that is not the
            // last one does not wait for that.
            (false, None) => None,
        };
        let calls = match state.is_some() {
            true => state.as_deref().and_then(calls_of),
            false => tried(shard.state.try_read()).and_then(|state| calls_of(&state)),
        };
        if let (true, Some(ContextState::Here(live))) = (wait, state.as_deref()) {
            self.driver.within(context, || {
                if let Some(pump) = &mut *shard.pump() {
                    let before = pump.counted();
                    self.bring_home(live, pump, (before, self.wait_at_end()));
                }
            });
        }
        if wait {
            // Nobody asks streams there from here on.
            let _asking = self.quiet.asking();
            self.graphs.captures.context_gone(context.0 as usize);
        }
        let pause = calls.as_ref().map(|calls| calls.pause());
        // Nobody takes data out of it meanwhile, for it may have been the last release after all.
        let pump = state.is_none().then(|| shard.pump());
        let result = end();
        if !ended(&result) {
            return result;
        }
        if let Some(mut pump) = pump {
            *pump = None;
        }
        if let Some(pause) = pause {
            pause.close();
        }
        let mut state = state.unwrap_or_else(|| shard.write());
        // It is in one of the lists all the time.
        if let (Some(number), Some(shared)) = (shard.number.get(), shard.left()) {
            self.context_registry.add_ended(*number, shared);
        }
        self.context_registry.remove(context);
        if let Some(timeline) = timeline::of(self) {
            timeline.close(context);
        }
        // Only maps of the first are ever compacted.
        if shard.number.get() == Some(&0) {
            self.quiet.forget();
        }
        if let ContextState::Here(live) = &*state {
            live.context_ended();
        }
        let gone = ContextState::Gone("its context was destroyed");
        // Its handles died with the context: not even its destructors may use them.
        std::mem::forget(std::mem::replace(&mut *state, gone));
        drop(state);
        self.forget_context(context.0 as usize);
        result
    }

    /// Nothing of ours is in a context any more.
    fn forget_context(&self, context: usize) {
        modules::context_gone(self, context);
        self.forget_timers(context);
        self.bound.give_back(context);
    }
}

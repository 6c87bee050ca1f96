//! What there is in a context is made when it is needed first, and the tool is told of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use warpbpf_driver::Context;
use warpbpf_driver::sys::CUcontext;
use warpbpf_session::{Live, Session};
use warpbpf_wire::{NoteLevel, ToTool};

use crate::contexts::memory_table;
use crate::device::context_registry::MOST;
use crate::device::context_registry::{ContextState, Shard};
use crate::device::pump::Pump;
use crate::instrument::describe::{context_info, ready};
use crate::instrument::modules;
use crate::instrument::modules::pending::instrument_pending;
use crate::runtime::agent::{Absent, Agent, Unmade};
use crate::sys::descriptors::OwnDescriptor;
use crate::sys::lock::{lock, tried};
use crate::uprobe::sites::timeline_of;

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

    /// Instruments what waits in contexts that have no maps yet because their threads were turned
    /// away.
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

    /// A context is current and alive. The runtime makes a primary context current before it is
    /// retained, and until then everything in it fails as if it were destroyed: the next occasion
    /// comes.
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
        // Who comes second meanwhile waits for the number, and not for kernels: there were none
        // with programs.
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
        let made = self
            .bound
            .take_for(&self.driver, context, session)
            .map_err(|error| Unmade(error.to_string()));
        let made = made.and_then(|()| {
            Live::new_with(&self.driver, Arc::clone(session), first, |live| {
                Pump::new(live, ring, &self.files).map_err(Unmade::from)
            })
        });
        match made {
            Ok((live, (pump, fd))) => {
                self.announce(session, shard, &live, pump, fd);
                memory_table::publish_all(self, &live);
                if shard.number.get() != Some(&0) {
                    // Streams are asked with one context current, and are of several now.
                    self.quiet.give_up();
                } else if live.compactable().next().is_some() {
                    self.quiet.watch();
                }
                if let Some(calls) = live.calls()
                    && let Err(error) = crate::device::calls::start(Arc::clone(calls))
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
                // Who makes variants waits for `state`: a launch that begins when there is one
                // finds events.
                if let (Some(timeline), Some(number)) = (timeline_of(self), shard.number.get()) {
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

    /// Has a thread of ours work with what is in a context, which is current meanwhile and cannot
    /// end. None where there is nothing.
    pub(crate) fn with_ours<T>(
        &'static self,
        shard: &Shard,
        work: impl FnOnce(&Live) -> T,
    ) -> Option<T> {
        let work = || match &*shard.read() {
            ContextState::Here(live) => self.driver.within(shard.context, || work(live)),
            ContextState::NotYet | ContextState::Gone(_) => None,
        };
        let after = || {
            self.driver
                .within(shard.context, || instrument_pending(self));
        };
        shard.ours.make(work, after)
    }
}

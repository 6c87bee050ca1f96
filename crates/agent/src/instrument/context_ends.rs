//! A context ends: what is in it is brought home first, and nothing of ours outlives it.

use std::sync::Arc;

use warpbpf_driver::Context;
use warpbpf_session::{Calls, Live};
use warpbpf_wire::NoteLevel;

use crate::device::context_registry::ContextState;
use crate::device::drain::{self, NotDrained};
use crate::device::pump::{self, Pump};
use crate::instrument::modules;
use crate::runtime::agent::Agent;
use crate::sys::lock::tried;
use crate::uprobe::sites::timeline_of;

impl Agent {
    /// Waits for the kernels in a context that ends, or whose process does, and which is current:
    /// whatever is captured there ends, too.
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
        if let Some(timeline) = timeline_of(self) {
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

    /// Before a context ends: waits for its kernels and brings everything home, on this thread,
    /// then runs `end`. What is in it is gone if `ended` says so afterwards.
    pub(crate) fn context_ends<T>(
        &self,
        context: Context,
        end: impl FnOnce() -> T,
        ended: impl FnOnce(&T) -> bool,
    ) -> T {
        self.end_context(context, true, end, ended)
    }

    /// Runs `end`, after which a context may be gone, without having waited for its kernels. If
    /// `ended` says so, nothing in it may be called any more; who answers calls to the host stands
    /// still until that is known.
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
            // Who loads code there may wait for kernels, and those for what the application does
            // next: a release that is not the last one does not wait for that.
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
        if let Some(timeline) = timeline_of(self) {
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
        self.watchdog.forget_timers(context);
        self.bound.give_back(context);
    }
}

/// Who answers calls to maps on the host.
fn calls_of(state: &ContextState) -> Option<Arc<Calls>> {
    match state {
        ContextState::Here(live) => live.calls().cloned(),
        ContextState::NotYet | ContextState::Gone(_) => None,
    }
}

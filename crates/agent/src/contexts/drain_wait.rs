//! Drain: wait until all that was launched so far has ended. A tool that goes needs it, so that
//! what its programs counted is complete. Nobody else is held up.
//!
//! The driver does not say when a kernel ends. To wait for a whole context would spoil the
//! application's captures there. So the agent records a completion event behind everything in the
//! context, at a moment in which nothing is captured and no capture begins, and asks the event
//! until it has passed. Captures that begin later are no hindrance. A driver before CUDA 12.5 has
//! no such events; there the agent waits for the context.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use warpbpf_wire::NoteLevel;

use crate::device::context_registry::{ContextState, Shard};
use crate::device::drain::Ends;
use crate::device::drain::{NotDrained, all};
use crate::runtime::agent::Agent;
use crate::sys::lock::tried;
use crate::sys::thread;

/// How long kernels are waited for when a second tool goes: less than that tool waits for the
/// answer.
const LIMIT: Duration = Duration::from_secs(30);

/// How long captures are waited for: they take as long as the host needs to say what is in a graph.
const CAPTURES: Duration = Duration::from_secs(10);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// All that was launched in a context so far.
#[derive(Debug)]
struct Wait {
    shard: Arc<Shard>,
    /// The completion event is behind it.
    is_marked: bool,
    /// Captures were what was in the way at the last look.
    is_captured: bool,
}

impl Wait {
    /// It has ended, or that will not be known; `None`: not yet. The context cannot end meanwhile.
    /// Nothing here waits for the device, unless the driver has no completion events, and then
    /// `blocks` is called before.
    fn look(
        &mut self,
        agent: &Agent,
        since: Instant,
        blocks: &mut dyn FnMut(),
    ) -> Option<Result<(), NotDrained>> {
        let shard = Arc::clone(&self.shard);
        let state = tried(shard.state.try_read())?;
        match &*state {
            ContextState::Here(_) => {}
            // Who ends a context waits for its kernels.
            ContextState::NotYet | ContextState::Gone(_) => return Some(Ok(())),
        }
        let look = || {
            agent
                .driver
                .relaxed(|| self.look_there(agent, since, blocks))
        };
        agent
            .driver
            .within(shard.context, look)
            .unwrap_or(Some(Ok(())))
    }

    fn look_there(
        &mut self,
        agent: &Agent,
        since: Instant,
        blocks: &mut dyn FnMut(),
    ) -> Option<Result<(), NotDrained>> {
        let (driver, context) = (&agent.driver, self.shard.context);
        let completion_event = self
            .shard
            .completion_event
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        if !self.is_marked {
            let asking = agent.quiet.asking();
            self.is_captured = agent.graphs.captures.is_any(&agent.driver);
            if self.is_captured {
                return (since.elapsed() >= CAPTURES).then_some(Err(NotDrained::Captures));
            }
            match completion_event
                .as_ref()
                .map_or(Ok(false), |completion_event| {
                    driver.record_completion(context, completion_event)
                }) {
                Ok(true) => self.is_marked = true,
                Ok(false) => {
                    // For as long as a kernel runs, which may wait for the thread that begins a
                    // capture.
                    drop(asking);
                    blocks();
                    return Some(driver.synchronize().map_err(NotDrained::Driver));
                }
                Err(error) => return Some(Err(NotDrained::Driver(error))),
            }
        }
        match driver.has_passed(completion_event.as_ref()?) {
            Ok(false) => None,
            Ok(true) => Some(Ok(())),
            Err(error) => Some(Err(NotDrained::Driver(error))),
        }
    }
}

/// Waits until then for all that was launched so far, in all contexts, and keeps nobody from them
/// meanwhile. `goes_on` says whether it still matters. It is told `true` before a call that ends
/// when kernels have, whatever it says.
pub(crate) fn wait_for(
    agent: &Agent,
    until: Instant,
    mut goes_on: impl FnMut(bool) -> bool,
) -> Ends {
    let since = Instant::now();
    let wait = |shard| Wait {
        shard,
        is_marked: false,
        is_captured: false,
    };
    let mut waits: Vec<Wait> = agent.context_registry.all().into_iter().map(wait).collect();
    let mut ends = Ends::new();
    loop {
        let mut blocks = || {
            goes_on(true);
        };
        waits.retain_mut(|wait| match wait.look(agent, since, &mut blocks) {
            Some(end) => {
                ends.insert(wait.shard.context.0, end);
                false
            }
            None => true,
        });
        if waits.is_empty() || Instant::now() >= until || !goes_on(false) {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    let left = waits.into_iter().map(|wait| {
        let why = match wait.is_captured {
            true => NotDrained::Captures,
            false => NotDrained::Running,
        };
        (wait.shard.context.0, Err(why))
    });
    ends.extend(left);
    ends
}

/// Has a request answered once all kernels that were launched so far have ended, if second tools'
/// programs were in any.
pub(crate) fn wait(agent: &'static Agent, token: u64) {
    let drain = &agent.drain;
    if drain.all_left() && !drain.is_used() {
        drain.answer(token);
        return agent.wake();
    }
    // Others' counts go on.
    let clients = agent.kernel_registry.leaving();
    let started = thread::start("warpbpf-drain", move || {
        if let Err(why) = have_ended(agent, Instant::now() + LIMIT) {
            agent.note_to(
                &clients,
                NoteLevel::Warning,
                format!("what is shown is as it was copied last, the kernels that ran at the end were not waited for: {why}"),
            );
        }
        agent.drain.answer(token);
        agent.wake();
    });
    if started.is_err() {
        // What is there by now is better than no answer.
        agent.drain.answer(token);
        agent.wake();
    }
}

/// The same for those with second tools' programs; those that are under way are in no stream yet.
fn have_ended(agent: &'static Agent, until: Instant) -> Result<(), NotDrained> {
    while !agent.drain.all_left() {
        if Instant::now() >= until || !agent.is_on() {
            return Err(NotDrained::Running);
        }
        std::thread::sleep(PAUSE);
    }
    all(wait_for(agent, until, |_| agent.is_on()))
}

//! The end of what was launched so far, for a tool that goes: what its programs counted comes home whole, and nobody else is held up.
//!
//! The driver does not say when a kernel ends, and to wait for a whole context would spoil the application's captures there. So a mark is put behind
//! everything in the context while nothing is captured, which is a moment in which no capture begins, and the mark is asked until it has passed;
//! captures that begin later are no hindrance. A driver before CUDA 12.5 has no such marks, and its contexts are waited for.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use warpbpf_driver::{Context, DriverError, Mark};
use warpbpf_wire::NoteLevel;

use crate::agent::Agent;
use crate::generation::Generation;
use crate::lives::{LiveState, Shard, tried};
use crate::lock::lock;
use crate::thread;

/// How long kernels are waited for when a second tool goes: less than that tool waits for the answer.
const LIMIT: Duration = Duration::from_secs(30);
/// How long captures are waited for: they take as long as the host needs to say what is in a graph.
const CAPTURES: Duration = Duration::from_secs(10);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// Requests that are to be answered.
    answers: Mutex<Vec<u64>>,
    /// There was a launch with a second tool's programs.
    used: AtomicBool,
    /// Programs that are in force no more, of which launches may be under way: those are in no stream yet.
    left: Mutex<Vec<&'static Generation>>,
}

impl Settled {
    pub(crate) fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *lock(&self.answers))
    }

    fn answer(&self, agent: &Agent, token: u64) {
        lock(&self.answers).push(token);
        agent.wake();
    }

    /// Others are in force now.
    pub(crate) fn leave(&self, generation: &'static Generation) {
        let mut left = lock(&self.left);
        left.retain(|generation| !generation.is_left());
        left.push(generation);
    }

    /// No launch with programs that are in force no more is under way.
    fn all_left(&self) -> bool {
        let mut left = lock(&self.left);
        left.retain(|generation| !generation.is_left());
        left.is_empty()
    }

    /// A launch with a second tool's programs is about to be made.
    #[inline]
    pub(crate) fn note(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }
}

/// Why it is not known that kernels have ended.
#[derive(Debug, PartialEq)]
pub(crate) enum Unsettled {
    /// The application captured all the while.
    Captures,
    /// Some have not.
    Running,
    /// The driver does not say.
    Driver(DriverError),
}

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsettled::Captures => f.write_str(
                "the application was capturing a graph all the while, which that would have spoiled",
            ),
            Unsettled::Running => f.write_str("some were still running"),
            Unsettled::Driver(error) => error.fmt(f),
        }
    }
}

/// All that was launched in a context so far, once a mark could be put behind it.
#[derive(Debug)]
struct Wait {
    since: Instant,
    mark: Option<Mark>,
}

impl Wait {
    fn new() -> Wait {
        Wait {
            since: Instant::now(),
            mark: None,
        }
    }

    /// It has ended, or that will not be known; `None`: not yet. The context is current.
    fn look(&mut self, agent: &Agent, context: Context) -> Option<Result<(), Unsettled>> {
        if self.mark.is_none() {
            let asking = agent.quiet.asking();
            if agent.graphs.captures.is_any(agent) {
                return (self.since.elapsed() >= CAPTURES).then_some(Err(Unsettled::Captures));
            }
            match agent.driver.relaxed(|| agent.driver.mark(context)) {
                Ok(Some(mark)) => self.mark = Some(mark),
                Ok(None) => {
                    // For as long as a kernel runs, which may wait for the thread that begins a capture.
                    drop(asking);
                    let waited = agent.driver.relaxed(|| agent.driver.synchronize());
                    return Some(waited.map_err(Unsettled::Driver));
                }
                Err(error) => return Some(Err(Unsettled::Driver(error))),
            }
        }
        let mark = self.mark.as_ref()?;
        let passed = agent.driver.relaxed(|| agent.driver.has_passed(mark));
        if passed == Ok(false) {
            return None;
        }
        self.give_back(agent);
        Some(passed.map(|_| ()).map_err(Unsettled::Driver))
    }

    /// The context is current.
    fn give_back(&mut self, agent: &Agent) {
        if let Some(mark) = self.mark.take() {
            agent.driver.forget(mark);
        }
    }
}

/// Waits for all that was launched so far in a context, which is current.
pub(crate) fn wait_for(agent: &Agent, context: Context, until: Instant) -> Result<(), Unsettled> {
    let mut wait = Wait::new();
    loop {
        if let Some(known) = wait.look(agent, context) {
            return known;
        }
        if Instant::now() >= until {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    match wait.mark {
        Some(_) => {
            wait.give_back(agent);
            Err(Unsettled::Running)
        }
        None => Err(Unsettled::Captures),
    }
}

/// Has a request answered once all kernels that were launched so far have ended, if second tools' programs were in any.
pub(crate) fn wait(agent: &'static Agent, token: u64) {
    if !agent.settled.used.load(Ordering::Relaxed) {
        return agent.settled.answer(agent, token);
    }
    // Others' counts go on.
    let guests = agent.roster.leaving();
    let started = thread::start("warpbpf-settled", move || {
        if let Err(why) = have_ended(agent, Instant::now() + LIMIT) {
            agent.note_to(
                &guests,
                NoteLevel::Warning,
                format!("what is shown is as it was copied last, the kernels that ran at the end were not waited for: {why}"),
            );
        }
        agent.settled.answer(agent, token);
    });
    if started.is_err() {
        // What is there by now is better than no answer.
        agent.settled.answer(agent, token);
    }
}

/// Waits for all contexts, and keeps nobody from them who ends one meanwhile.
fn have_ended(agent: &'static Agent, until: Instant) -> Result<(), Unsettled> {
    while !agent.settled.all_left() {
        if Instant::now() >= until || !agent.is_on() {
            return Err(Unsettled::Running);
        }
        std::thread::sleep(PAUSE);
    }
    let mut waits: Vec<(Arc<Shard>, Wait)> = (agent.lives.all().into_iter())
        .map(|shard| (shard, Wait::new()))
        .collect();
    let mut result = Ok(());
    loop {
        waits.retain_mut(|(shard, wait)| {
            match within(agent, shard, |context| wait.look(agent, context)) {
                Within::Done(Some(known)) => {
                    if known.is_err() {
                        result = known;
                    }
                    false
                }
                Within::Done(None) | Within::Later => true,
                // Who ends a context waits for its kernels.
                Within::Gone => false,
            }
        });
        if waits.is_empty() || !agent.is_on() {
            return result;
        }
        if Instant::now() >= until {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    for (shard, wait) in &mut waits {
        result = Err(match wait.mark {
            Some(_) => Unsettled::Running,
            None => Unsettled::Captures,
        });
        within(agent, shard, |_| wait.give_back(agent));
    }
    result
}

enum Within<T> {
    Done(T),
    /// Somebody else has it now.
    Later,
    Gone,
}

/// `work` in a context, which cannot end meanwhile.
fn within<T>(agent: &Agent, shard: &Shard, work: impl FnOnce(Context) -> T) -> Within<T> {
    let Some(state) = tried(shard.state.try_read()) else {
        return Within::Later;
    };
    match &*state {
        LiveState::Here(_) => {}
        LiveState::NotYet | LiveState::Gone(_) => return Within::Gone,
    }
    let done = agent.driver.within(shard.context, || work(shard.context));
    done.map_or(Within::Gone, Within::Done)
}

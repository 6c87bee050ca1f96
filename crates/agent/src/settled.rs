//! The end of what was launched so far, for a second tool that goes: its programs come home whole, and nobody else is held up.
//!
//! The driver does not say when a kernel ends, and to wait for a whole context, or to ask a stream that is captured, would spoil the
//! application's captures. So launches with second tools' programs note their streams, and those alone are asked: by an event of ours behind
//! what is in them, or, where that would make others wait (the legacy stream), whether they are empty. Nothing of this is done while
//! anything is captured, and captures do not begin meanwhile. A thread of its own waits, for a limited time, and the control thread, which has
//! others to serve, hears of it.
//!
//! Where the stream cannot be asked then, the event is there before ([`behind`]). What cannot be known is said: a stream that was destroyed with work in it while
//! something was captured, and more threads with streams of their own than are kept in mind.

use std::collections::BTreeSet;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use warpbpf_driver::sys::{self, CUevent, CUstream};
use warpbpf_driver::{Context, Stream};
use warpbpf_wire::NoteLevel;

use self::behind::Behind;
pub(crate) use self::behind::Launch;
use crate::agent::Agent;
use crate::generation::Generation;
use crate::graphs;
use crate::launch::{StreamName, is_per_thread};
use crate::lives::{LiveState, Shard, tried};
use crate::lock::lock;
use crate::thread;

mod behind;

/// How long kernels are waited for: less than the tool that asks waits for the answer.
const LIMIT: Duration = Duration::from_secs(30);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// Requests that are to be answered.
    answers: Mutex<Vec<u64>>,
    /// There is any stream below.
    used: AtomicBool,
    /// Contexts, and streams in them that second tools' programs went to; the null stream is the legacy one.
    streams: RwLock<BTreeSet<(usize, usize)>>,
    /// Events behind what went to streams that cannot be asked.
    behind: Behind,
    /// Second tools of which some programs may run where nobody sees them end: those that were there then.
    lost: Mutex<BTreeSet<u32>>,
    /// Programs that are in force no more, of which launches may be under way: their streams are not noted yet.
    left: Mutex<Vec<&'static Generation>>,
    /// Captures and ends of streams are not seen, so that none may be asked.
    blind: AtomicBool,
}

impl Settled {
    pub(crate) fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *lock(&self.answers))
    }

    fn answer(&self, agent: &Agent, token: u64) {
        lock(&self.answers).push(token);
        agent.wake();
    }

    /// A launch with a second tool's programs is about to go to a stream of the current context, as [`crate::launch`] names it. What comes back is
    /// to be dropped when it was made.
    pub(crate) fn note(
        &self,
        agent: &'static Agent,
        context: usize,
        stream: Stream,
    ) -> Option<Launch> {
        let key = (context, stream.0 as usize);
        if is_per_thread(stream) {
            self.used.store(true, Ordering::SeqCst);
            let launch = self.behind.launches(agent, key);
            if launch.is_none() {
                self.lose(agent);
            }
            return launch;
        }
        let known = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        if !known.contains(&key) {
            drop(known);
            self.used.store(true, Ordering::SeqCst);
            self.change(|streams| streams.insert(key));
        }
        None
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeSet<(usize, usize)>) -> T) -> T {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut streams)
    }

    fn streams(&self) -> Vec<(usize, usize)> {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        streams.iter().copied().collect()
    }

    fn knows(&self, key: (usize, usize)) -> bool {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        streams.contains(&key)
    }

    /// Streams were noted whose ends matter.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// A function of the driver is not hooked without which captures begin, or streams end, unseen.
    pub(crate) fn go_blind(&self) {
        self.blind.store(true, Ordering::SeqCst);
    }

    /// The application is about to destroy a stream. Nobody else asks it meanwhile.
    pub(crate) fn stream_goes(&self, agent: &Agent, stream: usize) {
        let of = |key: &(usize, usize)| key.1 == stream;
        let Some(key) = self.streams().into_iter().find(of).filter(|_| stream != 0) else {
            return;
        };
        self.change(|streams| streams.retain(|key| !of(key)));
        let idle = || agent.driver.is_idle(Stream(stream as CUstream));
        let ended = || agent.driver.relaxed(idle) != Ok(false);
        let known = || ended() || agent.driver.relaxed(|| self.behind.destroyed(agent, key));
        if agent.graphs.is_capturing_any() || !known() {
            self.lose(agent);
        }
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

    /// When a launch ends will not be known: whoever comes later has nothing in it.
    fn lose(&self, agent: &Agent) {
        let there = agent.roster.told();
        let mut lost = lock(&self.lost);
        lost.retain(|guest| there.contains(guest));
        lost.extend(there);
    }

    /// Those of these of which it cannot be known.
    fn lost_of(&self, guests: &[u32]) -> Vec<u32> {
        let lost = lock(&self.lost);
        let of = guests.iter().filter(|guest| lost.contains(guest));
        of.copied().collect()
    }

    /// A context has ended, and its streams.
    pub(crate) fn context_gone(&self, context: usize) {
        self.change(|streams| streams.retain(|(of, _)| *of != context));
        self.behind.context_gone(context);
    }
}

/// A stream whose work so far is waited for.
#[derive(Debug)]
struct Wait {
    shard: Arc<Shard>,
    stream: usize,
    /// Behind that work; null while there is none.
    event: CUevent,
}

impl Wait {
    /// For all streams that programs of second tools went to.
    fn all(agent: &Agent) -> Vec<Wait> {
        let streams = agent.settled.streams().into_iter();
        let wait = |(context, stream): (usize, usize)| {
            Some(Wait {
                shard: agent.lives.of(Context(context as *mut _))?,
                stream,
                event: ptr::null_mut(),
            })
        };
        streams.filter_map(wait).collect()
    }

    /// Its work has ended, or it will never be known.
    fn is_over(&mut self, agent: &'static Agent) -> bool {
        let shard = Arc::clone(&self.shard);
        // The context cannot end while this is held; who ends it waits for its kernels as well.
        let Some(state) = tried(shard.state.try_read()) else {
            return false;
        };
        match &*state {
            LiveState::Here(_) => {}
            LiveState::NotYet | LiveState::Gone(_) => return true,
        }
        let looked = || agent.driver.relaxed(|| self.look(agent));
        agent.driver.within(shard.context, looked).unwrap_or(true)
    }

    fn look(&mut self, agent: &'static Agent) -> bool {
        let api = &agent.driver.api;
        if self.event.is_null() && !self.mark(agent) {
            return false;
        }
        if self.event.is_null() {
            return true;
        }
        // SAFETY: an event of ours, whose context is alive.
        if unsafe { (api.event_query)(self.event) } == sys::NOT_READY {
            return false;
        }
        self.give_back(agent);
        true
    }

    /// Puts an event behind what is in the stream, unless it is empty; false if that cannot be done now.
    fn mark(&mut self, agent: &'static Agent) -> bool {
        let (settled, api) = (&agent.settled, &agent.driver.api);
        let _asking = agent.quiet.asking();
        if agent.graphs.is_capturing_any() {
            return false;
        }
        // Who destroyed it has asked it.
        if !settled.knows((self.shard.context.0 as usize, self.stream)) {
            return true;
        }
        let stream = self.stream as CUstream;
        let name = StreamName {
            stream,
            null_is_per_thread: false,
        };
        // Of captures that began before us.
        match graphs::is_capturing(agent, name) {
            Ok(true) => return false,
            Err(code) if graphs::is_of_capture(code) => return false,
            Ok(false) | Err(_) => {}
        }
        // A broken context has nothing more to give.
        if agent.driver.is_idle(Stream(stream)) != Ok(false) {
            return true;
        }
        // What comes later in others would wait for an event in the legacy stream.
        if self.stream == 0 {
            return false;
        }
        let mut event = ptr::null_mut();
        // SAFETY: a writable local.
        let made = unsafe { (api.event_create)(&mut event, sys::EVENT_DISABLE_TIMING) };
        if made == sys::SUCCESS {
            self.event = event;
            // SAFETY: an event of ours, and a stream of its context that nobody can destroy now.
            if unsafe { (api.event_record)(event, stream) } == sys::SUCCESS {
                return true;
            }
            self.give_back(agent);
        }
        // Whether it is empty can still be asked.
        false
    }

    /// Its context is current.
    fn give_back(&mut self, agent: &Agent) {
        let event = std::mem::replace(&mut self.event, ptr::null_mut());
        if !event.is_null() {
            // SAFETY: an event of ours that nobody else knows. It costs its memory if it stays.
            unsafe { (agent.driver.api.event_destroy)(event) };
        }
    }
}

/// Has a request answered once all kernels with second tools' programs that were launched so far have ended.
pub(crate) fn wait(agent: &'static Agent, token: u64) {
    // Others' counts go on.
    let guests = agent.roster.leaving();
    let started = thread::start("warpbpf-settled", move || {
        let unknown = still_unknown(agent, &guests, Instant::now() + LIMIT);
        if !unknown.is_empty() {
            agent.note_to(
                &unknown,
                NoteLevel::Warning,
                "a second tool's programs may still be in kernels that run: whether those have ended could not be known, and what it is shown is as it was copied last".to_owned(),
            );
        }
        agent.settled.answer(agent, token);
    });
    if started.is_err() {
        // What is there by now is better than no answer.
        agent.settled.answer(agent, token);
    }
}

/// Waits until then for kernels with programs of these; of whom it could not be known.
fn still_unknown(agent: &'static Agent, guests: &[u32], until: Instant) -> Vec<u32> {
    let settled = &agent.settled;
    if settled.blind.load(Ordering::SeqCst) || agent.graphs.is_blind() {
        return match settled.is_used() {
            true => guests.to_vec(),
            false => Vec::new(),
        };
    }
    while !settled.all_left() {
        if Instant::now() >= until || !agent.is_on() {
            return guests.to_vec();
        }
        std::thread::sleep(PAUSE);
    }
    let mut waits = Wait::all(agent);
    let mut behind = settled.behind.waits();
    loop {
        waits.retain_mut(|wait| !wait.is_over(agent));
        behind.retain_mut(|wait| !wait.is_over(agent, &settled.behind));
        if waits.is_empty() && behind.is_empty() {
            return settled.lost_of(guests);
        }
        if Instant::now() >= until || !agent.is_on() {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    for mut wait in waits {
        let shard = Arc::clone(&wait.shard);
        if let Some(LiveState::Here(_)) = tried(shard.state.try_read()).as_deref() {
            let give_back = || wait.give_back(agent);
            agent.driver.within(shard.context, give_back);
        }
    }
    guests.to_vec()
}

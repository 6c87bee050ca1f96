//! Which captures go on: a captured launch is no launch yet, and while anything is captured a context can be neither waited for nor marked.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use warpbpf_driver::sys::CUstream;
use warpbpf_driver::{Context, Stream};

use super::is_capturing;
use crate::agent::Agent;
use crate::launch::{StreamName, is_per_thread};
use crate::lock::lock;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    /// Contexts, and streams in them (as [`StreamName::key`] has them) that are captured.
    open: Mutex<BTreeSet<(usize, usize)>>,
    n_open: AtomicUsize,
    /// Some may have begun before any hook was in.
    unseen: AtomicBool,
}

impl Captures {
    /// We come while the application runs.
    pub(crate) fn come_late(&self) {
        self.unseen.store(true, Ordering::Relaxed);
    }

    /// There may be some. One load where we came first, which is what launches pay.
    #[inline]
    pub(crate) fn may_be_any(&self) -> bool {
        self.n_open.load(Ordering::Relaxed) > 0 || self.unseen.load(Ordering::Relaxed)
    }

    /// There is one whose stream has to be known.
    pub(crate) fn is_used(&self) -> bool {
        self.n_open.load(Ordering::Relaxed) > 0
    }

    fn change(&self, change: impl FnOnce(&mut BTreeSet<(usize, usize)>)) {
        let mut open = lock(&self.open);
        change(&mut open);
        self.n_open.store(open.len(), Ordering::SeqCst);
    }

    /// A capture begins in a stream, or ends there.
    pub(crate) fn note(&self, context: usize, stream: Stream, goes_on: bool) {
        let key = (context, stream.0 as usize);
        self.change(|open| {
            match goes_on {
                true => open.insert(key),
                false => open.remove(&key),
            };
        });
    }

    /// A stream was found to be captured.
    pub(crate) fn found(&self, agent: &Agent, stream: StreamName) {
        // Where it began is known, and where it went from there ends with that.
        if self.unseen.load(Ordering::Relaxed) {
            self.note(current(agent), stream.key(), true);
        }
    }

    /// Anything is captured, for all that can be known. Who asks has [`crate::quiet::Quiet::asking`]: none begins meanwhile, and no stream goes away.
    pub(crate) fn is_any(&self, agent: &Agent) -> bool {
        if !self.is_used() {
            return false;
        }
        let open = lock(&self.open).clone();
        let over = |(context, stream): &(usize, usize)| {
            let (context, stream) = (Context(*context as *mut _), Stream(*stream as *mut _));
            // Of a thread's own stream only that thread can ask; its end is seen.
            let asked = !is_per_thread(stream);
            asked && agent.driver.within(context, || has_ended(agent, stream)) == Some(true)
        };
        let over: Vec<(usize, usize)> = open.into_iter().filter(over).collect();
        self.change(|open| open.retain(|capture| !over.contains(capture)));
        self.is_used()
    }

    /// The application is about to destroy a stream, and its capture with it.
    pub(crate) fn stream_goes(&self, stream: usize) {
        if self.is_used() && stream != 0 {
            self.change(|open| open.retain(|(_, of)| *of != stream));
        }
    }

    /// A context has ended, and what was captured there.
    pub(crate) fn context_gone(&self, context: usize) {
        if self.is_used() {
            self.change(|open| open.retain(|(of, _)| *of != context));
        }
    }

    /// In a forked child, where no lock may be taken.
    pub(crate) fn forget_in_child(&self) {
        self.n_open.store(0, Ordering::Relaxed);
        self.unseen.store(false, Ordering::Relaxed);
    }
}

fn has_ended(agent: &Agent, stream: Stream) -> bool {
    let name = StreamName {
        stream: stream.0 as CUstream,
        null_is_per_thread: false,
    };
    agent.driver.relaxed(|| is_capturing(agent, name)) == Ok(false)
}

/// The current context, where streams are that are captured; 0 if there is none.
pub(crate) fn current(agent: &Agent) -> usize {
    agent
        .driver
        .current()
        .map_or(0, |context| context.0 as usize)
}

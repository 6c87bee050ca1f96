//! Streams and events. Work runs where it is submitted, on the caller's thread, unless something is
//! still pending in its stream: then it queues behind that on the stream's own thread. Pending is
//! what a host function started, or everything with `WARPBPF_SOFT_ASYNC=1`, which programs need
//! whose kernels wait for the host.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::driver::capture::Captured;
use crate::driver::objects::Attributes;
use crate::state::{Handle, lock, new_handle};

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    running: bool,
    has_thread: bool,
    closed: bool,
}

/// A stream; the NULL stream of a context is one too.
pub(crate) struct Stream {
    pub handle: Handle,
    pub context: Handle,
    pub id: u64,
    pub flags: u32,
    pub priority: i32,
    pub attributes: Attributes,
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// How a job may run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Run {
    /// On this thread if the stream is idle.
    Here,
    /// Never on this thread.
    Elsewhere,
}

impl Stream {
    pub(crate) fn new(context: Handle, flags: u32, priority: i32) -> Arc<Stream> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Arc::new(Stream {
            handle: new_handle(),
            context,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            flags,
            priority,
            attributes: Attributes::default(),
            queue: Mutex::new(Queue::default()),
            changed: Condvar::new(),
        })
    }

    /// Runs `job` behind everything submitted before.
    pub(crate) fn submit(self: &Arc<Stream>, run: Run, job: impl FnOnce() + Send + 'static) {
        let mut queue = lock(&self.queue);
        if run == Run::Here && queue.jobs.is_empty() && !queue.running {
            queue.running = true;
            drop(queue);
            // Set back whatever happens: a panic must not leave the stream busy for ever.
            let _done = Done(self);
            job();
            return;
        }
        queue.jobs.push_back(Box::new(job));
        if !queue.has_thread {
            queue.has_thread = true;
            let stream = Arc::clone(self);
            let name = format!("soft-stream-{}", self.id);
            if std::thread::Builder::new()
                .name(name)
                .spawn(move || stream.work())
                .is_err()
            {
                // No thread to be had: the caller does it all now, in order.
                queue.has_thread = false;
                drop(queue);
                self.drain_here();
                return;
            }
        }
        self.changed.notify_all();
    }

    fn work(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if !queue.running {
                if let Some(job) = queue.jobs.pop_front() {
                    queue.running = true;
                    drop(queue);
                    let done = Done(self);
                    // A panic in our own code is reported by the hook; the stream goes on.
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                    drop(done);
                    queue = lock(&self.queue);
                    continue;
                }
                if queue.closed {
                    return;
                }
            }
            queue = self
                .changed
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn drain_here(&self) {
        loop {
            let mut queue = lock(&self.queue);
            while queue.running {
                queue = self
                    .changed
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            let Some(job) = queue.jobs.pop_front() else {
                return;
            };
            queue.running = true;
            drop(queue);
            let _done = Done(self);
            job();
        }
    }

    /// Nothing pending.
    pub(crate) fn idle(&self) -> bool {
        let queue = lock(&self.queue);
        queue.jobs.is_empty() && !queue.running
    }

    /// Waits until nothing is pending.
    pub(crate) fn synchronize(&self) {
        let mut queue = lock(&self.queue);
        while queue.running || !queue.jobs.is_empty() {
            queue = self
                .changed
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets the thread end when the pending work is done.
    pub(crate) fn close(&self) {
        lock(&self.queue).closed = true;
        self.changed.notify_all();
    }
}

struct Done<'s>(&'s Stream);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        lock(&self.0.queue).running = false;
        self.0.changed.notify_all();
    }
}

#[derive(Default)]
struct Recorded {
    submitted: u64,
    completed: u64,
    at: Option<Instant>,
}

/// An event.
pub(crate) struct Event {
    pub handle: Handle,
    pub context: Handle,
    pub flags: u32,
    /// Its last recording was captured: it stands for places in a graph.
    pub captured: Mutex<Option<Captured>>,
    recorded: Mutex<Recorded>,
    changed: Condvar,
}

impl Event {
    pub(crate) fn new(context: Handle, flags: u32) -> Arc<Event> {
        Arc::new(Event {
            handle: new_handle(),
            context,
            flags,
            captured: Mutex::new(None),
            recorded: Mutex::new(Recorded::default()),
            changed: Condvar::new(),
        })
    }

    /// A new recording is on its way; its ticket is for [`Event::complete`].
    pub(crate) fn submit(&self) -> u64 {
        let mut recorded = lock(&self.recorded);
        recorded.submitted += 1;
        recorded.submitted
    }

    pub(crate) fn complete(&self, ticket: u64) {
        let mut recorded = lock(&self.recorded);
        recorded.completed = recorded.completed.max(ticket);
        recorded.at = Some(Instant::now());
        self.changed.notify_all();
    }

    /// The latest recording has happened, or there is none.
    pub(crate) fn done(&self) -> bool {
        let recorded = lock(&self.recorded);
        recorded.completed == recorded.submitted
    }

    pub(crate) fn wait(&self) {
        let mut recorded = lock(&self.recorded);
        let ticket = recorded.submitted;
        while recorded.completed < ticket {
            recorded = self
                .changed
                .wait(recorded)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// When it was recorded; `None` if never.
    pub(crate) fn at(&self) -> Option<Instant> {
        lock(&self.recorded).at
    }
}

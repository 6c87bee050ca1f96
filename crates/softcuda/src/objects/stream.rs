//! Streams. Work runs where it is submitted, on the caller's thread, unless something is
//! still pending in its stream: then it queues behind that on the stream's own thread. Pending is
//! what a host function started, or everything with `WARPBPF_SOFT_ASYNC=1`, which programs need
//! whose kernels wait for the host.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::objects::handle::{Handle, lock, new_handle};
use crate::objects::kernel_call::AttributeValue;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    running: bool,
    has_thread: bool,
    closed: bool,
}

/// Attributes of a stream, which another one is given.
pub(crate) type Attributes = Mutex<BTreeMap<u32, AttributeValue>>;

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

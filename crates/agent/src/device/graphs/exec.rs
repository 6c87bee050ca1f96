//! What is known of an executable graph.

use std::sync::atomic::{AtomicU64, Ordering};

use warpbpf_driver::Driver;
use warpbpf_driver::sys::{self, CUevent, CUstream};

use crate::device::graphs::records::{Records, Use};
use crate::device::graphs::tell::Told;
use crate::kernels::entry::Runs;

/// What is known of an executable graph.
#[derive(Debug, Default)]
pub(crate) struct Exec {
    /// Counts from 1 as graphs are instantiated; 0 if that was not seen.
    pub(crate) number: u32,
    pub(crate) uses: Vec<Use>,
    /// How many nodes count in each counter: of parts, and then of totals ([`Runs::count`]).
    pub(crate) sums: Vec<(&'static AtomicU64, u64)>,
    pub(crate) has_records: bool,
    /// Launch records of its own that no node has now.
    pub(crate) spare: Records,
    /// Recorded behind each launch, where there are launch records, to know when it has ended.
    pub(crate) ended: Option<Event>,
    /// A launch was not marked.
    pub(crate) lost: bool,
    /// What a timeline is told of it.
    pub(crate) told: Told,
}

/// A driver's event, and the context that it was made in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event(pub(crate) CUevent, pub(crate) usize);

// SAFETY: a handle, which every thread may use.
unsafe impl Send for Event {}

/// Launch records of an executable graph that was destroyed, perhaps while it ran.
#[derive(Debug)]
pub(crate) struct Leftover {
    pub(crate) records: Records,
    pub(crate) ended: Event,
}

impl Leftover {
    /// A context is gone; true if nothing is left, or it can never be known when it has ended.
    pub(crate) fn loses(&mut self, context: usize) -> bool {
        self.records.forget(context);
        self.ended.1 == context || self.records.0.is_empty()
    }
}

impl Exec {
    /// It was launched.
    pub(crate) fn count(&self) {
        for (sum, nodes) in &self.sums {
            sum.fetch_add(*nodes, Ordering::Release);
        }
    }

    /// Sums its nodes up, so that a launch does not look at each.
    pub(crate) fn sum_up(&mut self) {
        self.told.changed();
        self.sums.clear();
        self.has_records = self.uses.iter().any(|it| it.record.is_some());
        // What runs of a body is not known.
        let enabled = self.uses.iter().filter(|it| it.enabled && !it.body);
        let runs = enabled.filter_map(|it| it.kernel.map(|(_, runs)| runs));
        let parts = runs.clone().flat_map(Runs::parts);
        for sum in parts.chain(runs.map(Runs::total)) {
            match (self.sums.iter_mut()).find(|(known, _)| std::ptr::eq(*known, sum)) {
                Some((_, nodes)) => *nodes += 1,
                None => self.sums.push((sum, 1)),
            }
        }
    }

    /// Remembers where its launch ends.
    pub(crate) fn mark(&mut self, driver: &Driver, stream: CUstream) {
        if !self.has_records {
            return;
        }
        let api = &driver.api;
        if self.ended.is_none() {
            let mut event = std::ptr::null_mut();
            // SAFETY: a writable local.
            let made = unsafe { (api.event_create)(&mut event, sys::EVENT_DISABLE_TIMING) };
            let context = driver.current().map_or(0, |c| c.0 as usize);
            self.ended = (made == sys::SUCCESS).then_some(Event(event, context));
        }
        // SAFETY: an event of ours and the application's stream.
        let marked = |event: &Event| unsafe { (api.event_record)(event.0, stream) } == sys::SUCCESS;
        // Without a mark nobody knows when it ends: its records are not used again.
        self.lost |= !self.ended.as_ref().is_some_and(marked);
    }

    /// A context is gone; true if the graph had nodes in it, and can run no more.
    pub(crate) fn loses(&mut self, context: usize) -> bool {
        self.spare.forget(context);
        if self.ended.is_some_and(|Event(_, of)| of == context) {
            self.ended = None;
            self.lost = true;
        }
        let gone = |it: &Use| {
            let place = it.kernel.and_then(|(_, runs)| runs.place());
            place.is_some_and(|place| place.context().is_none())
                || it.record.is_some_and(|record| record.context == context)
        };
        self.uses.iter().any(gone)
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.uses.iter().any(|it| it.kernel.is_some())
    }
}

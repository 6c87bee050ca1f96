//! What has to be remembered of graphs (see [`crate::hooks::graphs`]).

use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use warpbpf_driver::Driver;
use warpbpf_driver::sys::{self, CUfunction, CUgraphExec, CUresult, CUstream};

use crate::device::graphs::bodies::Bodies;
use crate::device::graphs::captures::{Captures, is_capturing};
use crate::device::graphs::exec::{Exec, Leftover};
use crate::device::graphs::older::Older;
use crate::device::graphs::records::Records;
use crate::kernels::entry::{Entry, Place};
use crate::kernels::stream_name::StreamName;
use crate::sys::arena::Arena;
use crate::sys::lock::lock;
use crate::sys::table::Table;

/// See the module.
#[derive(Debug)]
pub(crate) struct Graphs {
    /// There are kernels that programs want, or there were: they may be in a graph.
    pub(crate) used: AtomicBool,
    /// A variant was put into a graph, which may be anywhere by now.
    pub(crate) held: AtomicBool,
    /// Not all of the driver's functions for graphs are hooked: no variant comes into one, because
    /// the application could see it there.
    pub(crate) blind: AtomicBool,
    /// From a variant's function to what it is.
    pub(crate) variants: Table<Variant>,
    pub(crate) known: Arena<Variant>,
    pub(crate) captures: Captures,
    /// Executable graphs that hold kernels which programs want; all of them, if there is a
    /// timeline.
    pub(crate) execs: RwLock<HashMap<usize, Arc<Mutex<Exec>>>>,
    pub(crate) n_execs: AtomicUsize,
    /// Graphs that were instantiated.
    pub(crate) instantiated: AtomicU32,
    /// Which one of them each executable graph is.
    pub(crate) numbers: Mutex<HashMap<usize, u32>>,
    /// Those that were there before us.
    pub(crate) older: Older,
    /// Launch records that no executable graph has now, and those of graphs that may still run.
    pub(crate) spare: Mutex<Records>,
    pub(crate) leftovers: Mutex<Vec<Leftover>>,
    pub(crate) bodies: Bodies,
}

/// A kernel and what runs in its place in a context. It lives as long as the agent, because a
/// launch may be looking at it.
#[derive(Debug)]
pub(crate) struct Variant {
    pub(crate) entry: &'static Entry,
    pub(crate) place: &'static Place,
}

/// Where a launch goes that is captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Captured {
    /// Into a graph.
    Graph,
    /// Into the body of a conditional node.
    Body,
    /// The driver does not say, but this: it may not be captured at all.
    Unknown(CUresult),
}

impl Default for Graphs {
    fn default() -> Graphs {
        Graphs {
            used: AtomicBool::new(false),
            held: AtomicBool::new(false),
            blind: AtomicBool::new(false),
            variants: Table::new(),
            known: Arena::default(),
            captures: Captures::default(),
            execs: RwLock::default(),
            n_execs: AtomicUsize::new(0),
            instantiated: AtomicU32::new(0),
            numbers: Mutex::default(),
            older: Older::default(),
            spare: Mutex::default(),
            leftovers: Mutex::default(),
            bodies: Bodies::default(),
        }
    }
}

impl Graphs {
    /// Hooks have work to do. That goes on after the tool is gone: graphs may hold variants.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// An executable graph holds kernels which programs want, or there may be some of which nobody
    /// knows what they hold.
    #[inline]
    pub(crate) fn sees_launches(&self) -> bool {
        self.n_execs.load(Ordering::Relaxed) > 0 || self.older.is_wanted()
    }

    /// Captures matter, which goes on like that: who detaches later must not spoil one.
    #[inline]
    pub(crate) fn sees_captures(&self, is_on: bool) -> bool {
        is_on || self.is_used()
    }

    /// We come while the application runs, and no hook is in yet.
    pub(crate) fn come_late(&self) {
        self.expect();
        self.older.begin();
        self.captures.come_late();
    }

    /// The tool is gone.
    pub(crate) fn forget_older(&self) {
        self.older.end();
    }

    /// What runs in a kernel's place in a context is there.
    pub(crate) fn know(&self, entry: &'static Entry, place: &'static Place) {
        if let Some(variant) = &place.variant {
            // SAFETY: graphs are a part of an agent.
            let known = unsafe { self.known.keep(Variant { entry, place }) };
            self.variants.insert(variant.function.0 as usize, known);
        }
    }

    /// Where a variant is known to be.
    #[cfg(test)]
    pub(crate) fn place_of(&self, variant: CUfunction) -> Option<&'static Place> {
        self.variants.get(variant as usize).map(|known| known.place)
    }

    /// A function that [`needs`] names is not hooked.
    pub(crate) fn go_blind(&self) {
        self.blind.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_blind(&self) -> bool {
        self.blind.load(Ordering::Relaxed)
    }

    /// There is a kernel that programs want.
    pub(crate) fn expect(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    /// A variant is put into a graph.
    pub(crate) fn hold(&self, place: &Place) {
        place.in_graphs.store(true, Ordering::SeqCst);
        self.held.store(true, Ordering::Relaxed);
    }

    /// Graphs may hold variants, and launch them whatever becomes of our hooks.
    pub(crate) fn may_hold(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    /// A variant goes.
    pub(crate) fn forget(&self, variant: CUfunction) {
        self.variants.remove(variant as usize);
    }

    /// A context is gone, its variants with it ([`Graphs::forget`] was called for each), and the
    /// graphs that held them cannot run.
    pub(crate) fn context_gone(&self, context: usize) {
        self.captures.context_gone(context);
        lock(&self.spare).forget(context);
        lock(&self.leftovers).retain_mut(|leftover| !leftover.loses(context));
        let mut execs = self.execs.write().unwrap_or_else(PoisonError::into_inner);
        execs.retain(|_, exec| !lock(exec).loses(context));
        self.n_execs.store(execs.len(), Ordering::Relaxed);
    }

    /// In a forked child, where no lock may be taken.
    pub(crate) fn forget_in_child(&self) {
        self.older.end();
        self.used.store(false, Ordering::Relaxed);
        self.captures.forget_in_child();
        self.n_execs.store(0, Ordering::Relaxed);
    }

    /// Where a launch in this stream goes, if it is captured.
    #[inline]
    pub(crate) fn captured(&self, driver: &Driver, stream: StreamName) -> Option<Captured> {
        // Nothing is captured at nearly every launch, and that costs a few loads.
        if !self.captures.may_be_any() && !self.is_blind() {
            return None;
        }
        match is_capturing(driver, stream) {
            Ok(true) => self.captures.found(driver, stream),
            Ok(false) => {
                self.captures.not_found(driver, stream);
                return None;
            }
            // Another stream is captured, and the legacy stream must not be used meanwhile: the
            // launch is the driver's to refuse.
            Err(code) if CAPTURE_ERRORS.contains(&code) => return None,
            Err(code) => return Some(Captured::Unknown(code)),
        }
        Some(match self.bodies.are_none() {
            true => Captured::Graph,
            false => self.captured_into(driver, stream.handle()),
        })
    }

    /// A launch of a kernel that is nobody's business may be the only one in a capture that began
    /// before us.
    #[inline]
    pub(crate) fn look_for_capture(&self, driver: &Driver, stream: StreamName) {
        if self.captures.is_unseen() && is_capturing(driver, stream) == Ok(true) {
            self.captures.found(driver, stream);
        }
    }

    fn captured_into(&self, driver: &Driver, stream: CUstream) -> Captured {
        let (mut status, mut graph) = (0, ptr::null_mut());
        let none = ptr::null_mut();
        // SAFETY: the application's stream and writable locals; the others may be null.
        let code = unsafe {
            let info = driver.api.capture_info;
            info(
                stream,
                &mut status,
                ptr::null_mut(),
                &mut graph,
                none,
                ptr::null_mut(),
            )
        };
        match code {
            sys::SUCCESS if self.bodies.contain(graph) => Captured::Body,
            sys::SUCCESS => Captured::Graph,
            code => Captured::Unknown(code),
        }
    }

    /// What is known of it, which whoever takes it puts back.
    pub(crate) fn take(&self, handle: CUgraphExec) -> Exec {
        match self.exec(handle) {
            Some(known) => std::mem::take(&mut *lock(&known)),
            None => Exec {
                number: lock(&self.numbers)
                    .get(&(handle as usize))
                    .copied()
                    .unwrap_or(0),
                ..Exec::default()
            },
        }
    }

    /// The number of a graph that is about to be instantiated.
    pub(crate) fn next_number(&self) -> u32 {
        self.instantiated.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn exec(&self, exec: CUgraphExec) -> Option<Arc<Mutex<Exec>>> {
        let execs = self.execs.read().unwrap_or_else(PoisonError::into_inner);
        execs.get(&(exec as usize)).cloned()
    }

    pub(crate) fn remove_exec(&self, handle: CUgraphExec) {
        self.older.is_gone(handle);
        lock(&self.numbers).remove(&(handle as usize));
        let mut execs = self.execs.write().unwrap_or_else(PoisonError::into_inner);
        let gone = execs.remove(&(handle as usize));
        self.n_execs.store(execs.len(), Ordering::Relaxed);
        drop(execs);
        let Some(mut gone) = gone.map(|gone| std::mem::take(&mut *lock(&gone))) else {
            return;
        };
        let mut records = Records::of(gone.uses.iter());
        records.0.append(&mut gone.spare.0);
        match gone.ended {
            _ if gone.lost => {}
            Some(ended) => lock(&self.leftovers).push(Leftover { records, ended }),
            // It never ran.
            None => lock(&self.spare).0.append(&mut records.0),
        }
    }

    /// Launch records of executable graphs that are gone and have ended, to choose from; what is
    /// left goes back by [`Graphs::give_back`].
    pub(crate) fn spare_records(&self, driver: &Driver) -> Records {
        let mut spare = std::mem::take(&mut *lock(&self.spare));
        let mut leftovers = lock(&self.leftovers);
        driver.relaxed(|| {
            let api = &driver.api;
            leftovers.retain_mut(|leftover| {
                // SAFETY: an event of ours.
                let ended = unsafe { (api.event_query)(leftover.ended.0) } == sys::SUCCESS;
                if ended {
                    spare.0.append(&mut leftover.records.0);
                    // SAFETY: as above; nobody else knows it. It costs its memory if it stays.
                    unsafe { (api.event_destroy)(leftover.ended.0) };
                }
                !ended
            });
        });
        spare
    }

    pub(crate) fn give_back(&self, mut records: Records) {
        lock(&self.spare).0.append(&mut records.0);
    }
}

/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` to `CUDA_ERROR_CAPTURED_EVENT`: what the driver says of
/// captures themselves.
const CAPTURE_ERRORS: std::ops::RangeInclusive<CUresult> = 900..=907;

#[cfg(test)]
mod tests {
    use warpbpf_session::choices::Choices;

    use super::*;
    use std::sync::atomic::AtomicU64;

    use crate::device::graphs::exec::Event;
    use crate::device::graphs::records::{Record, Use};
    use crate::kernels::entry::{Chosen, Entry, Runs};

    fn record(context: usize, bytes: u64) -> Record {
        Record {
            context,
            address: 0x1000 + bytes,
            bytes,
        }
    }

    fn exec(context: usize) -> Exec {
        Exec {
            uses: vec![Use {
                node: 1,
                within: Vec::new(),
                body: false,
                kernel: None,
                record: Some(record(context, 64)),
                enabled: true,
                at: Some(0),
                launch: 0,
                name: None,
            }],
            spare: Records(vec![record(16, 32), record(32, 32)]),
            ended: Some(Event(std::ptr::null_mut(), 16)),
            ..Exec::default()
        }
    }

    #[test]
    fn records_serve_variants_of_their_own_context() {
        let it = record(16, 64);
        assert!(it.serves(16, 64) && it.serves(16, 8));
        assert!(!it.serves(16, 65) && !it.serves(32, 8));
    }

    #[test]
    fn totals_come_behind_all_parts() {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let entry: &'static Entry = Box::leak(Box::new(Entry::new("k".into(), &MADE)));
        let place = |clients: &[u32]| {
            let place = Place::new(16, (0, 4), 1, (None, Choices::default()));
            entry.add(place.of(clients, &[]))
        };
        let (one, two) = (place(&[1, 2]), place(&[3]));
        let node = |place| Use {
            kernel: Some((entry, Runs::Variant(place, Chosen { own: 1, all: 1 }))),
            ..exec(16).uses.remove(0)
        };
        let mut exec = Exec {
            uses: [one, two, one].map(node).into(),
            ..Exec::default()
        };
        exec.sum_up();
        let nodes: Vec<u64> = exec.sums.iter().map(|(_, nodes)| *nodes).collect();
        assert_eq!(nodes, [2, 2, 1, 2, 1]);
        let is = |at: usize, place: &Place| std::ptr::eq(exec.sums[at].0, &place.launches);
        assert!(is(3, one) && is(4, two));
        exec.count();
        assert_eq!((entry.launched(), two.launches_without(3)), (3, Some(1)));
    }

    #[test]
    fn what_needs_a_context_goes_with_it() {
        let graphs = Graphs::default();
        for (handle, context) in [(1, 16), (2, 32)] {
            let made = Arc::new(Mutex::new(exec(context)));
            graphs.execs.write().unwrap().insert(handle, made);
        }
        lock(&graphs.spare).0 = vec![record(16, 8), record(32, 8)];
        for (made_in, of) in [(16, 32), (32, 16), (32, 32)] {
            lock(&graphs.leftovers).push(Leftover {
                records: Records(vec![record(of, 8)]),
                ended: Event(std::ptr::null_mut(), made_in),
            });
        }
        graphs.context_gone(16);
        // One graph had a node there; when the other has ended cannot be known any more.
        assert_eq!(graphs.n_execs.load(Ordering::Relaxed), 1);
        let left = graphs.exec(2usize as CUgraphExec).unwrap();
        let left = lock(&left);
        assert!(left.ended.is_none() && left.lost);
        assert_eq!(left.spare.0, [record(32, 32)]);
        assert_eq!(lock(&graphs.spare).0, [record(32, 8)]);
        let leftovers = lock(&graphs.leftovers);
        assert_eq!(leftovers.len(), 1);
        assert_eq!(leftovers[0].records.0, [record(32, 8)]);
    }
}

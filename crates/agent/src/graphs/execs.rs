//! Executable graphs: their nodes get launch records when they are made, and their launches are those of the kernels in
//! them.

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::nodes::Placed;
use super::tell::Told;
use super::walk::{self, Records, Use};
use super::{Graphs, lock};
use crate::agent::Agent;
use crate::entry::{Place, Runs};
use crate::exports::original;
use crate::fallback::FallbackReason;
use crate::guard::Outcome;
use crate::launch::StreamName;
use crate::{timeline, uprobe};
use warpbpf_driver::sys::{
    self, CUevent, CUgraph, CUgraphExec, CUgraphNode, CUresult, CUstream, KernelNodeParams,
};

/// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`
const DEVICE_LAUNCH: u64 = 4;

/// What is known of an executable graph.
#[derive(Debug, Default)]
pub(crate) struct Exec {
    /// Counts from 1 as graphs are instantiated; 0 if that was not seen.
    number: u32,
    uses: Vec<Use>,
    /// How many nodes count in each counter: of parts, and then of totals ([`Runs::count`]).
    sums: Vec<(&'static AtomicU64, u64)>,
    has_records: bool,
    /// Launch records of its own that no node has now.
    spare: Records,
    /// Recorded behind each launch, where there are launch records, to know when it has ended.
    ended: Option<Event>,
    /// A launch was not marked.
    lost: bool,
    /// What a timeline is told of it.
    told: Told,
}

/// A driver's event, and the context that it was made in.
#[derive(Debug, Clone, Copy)]
struct Event(CUevent, usize);

// SAFETY: a handle, which every thread may use.
unsafe impl Send for Event {}

/// Launch records of an executable graph that was destroyed, perhaps while it ran.
#[derive(Debug)]
pub(super) struct Leftover {
    records: Records,
    ended: Event,
}

impl Leftover {
    /// A context is gone; true if nothing is left, or it can never be known when it has ended.
    pub(super) fn loses(&mut self, context: usize) -> bool {
        self.records.forget(context);
        self.ended.1 == context || self.records.0.is_empty()
    }
}

impl Exec {
    /// It was launched.
    fn count(&self) {
        for (sum, nodes) in &self.sums {
            sum.fetch_add(*nodes, Ordering::Release);
        }
    }

    /// Sums its nodes up, so that a launch does not look at each.
    fn sum_up(&mut self) {
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

    /// Tells a timeline of its launch, which this thread has just made.
    fn tell(&mut self, agent: &'static Agent) {
        if let Some(timeline) = timeline::served(agent)
            && self.number != 0
        {
            let launch = self.told.launched(timeline, self.number, &self.uses);
            uprobe::launched_graph(launch);
        }
    }

    /// Remembers where its launch ends.
    fn mark(&mut self, agent: &'static Agent, stream: CUstream) {
        if !self.has_records {
            return;
        }
        let api = &agent.driver.api;
        if self.ended.is_none() {
            let mut event = std::ptr::null_mut();
            // SAFETY: a writable local.
            let made = unsafe { (api.event_create)(&mut event, sys::EVENT_DISABLE_TIMING) };
            let context = agent.driver.current().map_or(0, |c| c.0 as usize);
            self.ended = (made == sys::SUCCESS).then_some(Event(event, context));
        }
        // SAFETY: an event of ours and the application's stream.
        let marked = |event: &Event| unsafe { (api.event_record)(event.0, stream) } == sys::SUCCESS;
        // Without a mark nobody knows when it ends: its records are not used again.
        self.lost |= !self.ended.as_ref().is_some_and(marked);
    }

    /// A context is gone; true if the graph had nodes in it, and can run no more.
    pub(super) fn loses(&mut self, context: usize) -> bool {
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

    fn is_wanted(&self) -> bool {
        self.uses.iter().any(|it| it.kernel.is_some())
    }
}

impl Graphs {
    /// What is known of it, which whoever takes it puts back.
    fn take(&self, handle: CUgraphExec) -> Exec {
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
    fn next_number(&self) -> u32 {
        self.instantiated.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn exec(&self, exec: CUgraphExec) -> Option<Arc<Mutex<Exec>>> {
        let execs = self.execs.read().unwrap_or_else(PoisonError::into_inner);
        execs.get(&(exec as usize)).cloned()
    }

    fn put_exec(&self, agent: &'static Agent, handle: CUgraphExec, mut exec: Exec) {
        exec.sum_up();
        if exec.is_wanted() {
            // Its launches come when they come, and may be some that are not seen.
            agent.quiet.give_up();
        }
        lock(&self.numbers).insert(handle as usize, exec.number);
        let mut execs = self.execs.write().unwrap_or_else(PoisonError::into_inner);
        // The driver may have given out the handle of one that was destroyed unseen.
        execs.remove(&(handle as usize));
        if exec.is_wanted() || timeline::served(agent).is_some() {
            execs.insert(handle as usize, Arc::new(Mutex::new(exec)));
        }
        self.n_execs.store(execs.len(), Ordering::Relaxed);
    }

    fn remove_exec(&self, handle: CUgraphExec) {
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

    /// Launch records of executable graphs that are gone and have ended, to choose from; what is left goes back by
    /// [`Graphs::give_back`].
    fn spare_records(&self, agent: &'static Agent) -> Records {
        let mut spare = std::mem::take(&mut *lock(&self.spare));
        let mut leftovers = lock(&self.leftovers);
        agent.driver.relaxed(|| {
            let api = &agent.driver.api;
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

    fn give_back(&self, mut records: Records) {
        lock(&self.spare).0.append(&mut records.0);
    }
}

/// Makes an executable graph by `make`.
///
/// # Safety
/// `exec` is null, or written by a `make` that succeeds.
unsafe fn instantiate(
    agent: &'static Agent,
    outcome: &Outcome,
    (exec, graph): (*mut CUgraphExec, CUgraph),
    flags: u64,
    make: impl FnOnce() -> CUresult,
) -> CUresult {
    if flags & DEVICE_LAUNCH != 0 {
        walk::restore_all(agent, graph, || FallbackReason::DeviceLaunch);
    }
    let mut records = agent.graphs.spare_records(agent);
    let number = agent.graphs.next_number();
    let uses = walk::prepare(agent, graph, (number, 0), &mut records);
    agent.graphs.give_back(records);
    let code = outcome.keep(make());
    if code == sys::SUCCESS && !exec.is_null() {
        // SAFETY: the caller's promise.
        let handle = unsafe { *exec };
        let made = Exec {
            number,
            uses,
            ..Exec::default()
        };
        agent.graphs.put_exec(agent, handle, made);
        agent.graphs.older.is_newer(handle);
    } else {
        agent.graphs.give_back(Records::of(uses.iter()));
    }
    code
}

macro_rules! instantiate_with_log {
    ($($name:ident = $original:ident;)*) => { $(
        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $name(
            agent: &'static Agent, outcome: &Outcome, exec: *mut CUgraphExec, graph: CUgraph, node: *mut CUgraphNode,
            log: *mut c_char, bytes: usize,
        ) -> CUresult {
            // SAFETY: the application's own arguments.
            let make = || unsafe { original::$original(exec, graph, node, log, bytes) };
            // SAFETY: as above.
            unsafe { instantiate(agent, outcome, (exec, graph), 0, make) }
        }
    )* };
}

instantiate_with_log! {
    instantiate_v1 = instantiate_v1;
    instantiate_v2 = instantiate_v2;
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn instantiate_with_flags(
    agent: &'static Agent,
    outcome: &Outcome,
    exec: *mut CUgraphExec,
    graph: CUgraph,
    flags: u64,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let make = || unsafe { original::instantiate_with_flags(exec, graph, flags) };
    // SAFETY: as above.
    unsafe { instantiate(agent, outcome, (exec, graph), flags, make) }
}

macro_rules! instantiate_with_params {
    ($($name:ident = $original:ident;)*) => { $(
        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $name(
            agent: &'static Agent, outcome: &Outcome, exec: *mut CUgraphExec, graph: CUgraph, params: *mut c_void,
        ) -> CUresult {
            // SAFETY: `CUDA_GRAPH_INSTANTIATE_PARAMS` begins with the flags.
            let flags = unsafe { params.cast::<u64>().as_ref() }.map_or(0, |flags| *flags);
            // SAFETY: the application's own arguments.
            let make = || unsafe { original::$original(exec, graph, params) };
            // SAFETY: as above.
            unsafe { instantiate(agent, outcome, (exec, graph), flags, make) }
        }
    )* };
}

instantiate_with_params! {
    instantiate_with_params = instantiate_with_params;
    instantiate_with_params_ptsz = instantiate_with_params_ptsz;
}

/// It may still run: its launch records are others' when it has ended.
///
/// # Safety
/// As the driver's function.
pub(crate) unsafe fn exec_destroy(
    agent: &'static Agent,
    outcome: &Outcome,
    exec: CUgraphExec,
) -> CUresult {
    agent.graphs.remove_exec(exec);
    // SAFETY: the application's own argument.
    outcome.keep(unsafe { original::exec_destroy(exec) })
}

macro_rules! graph_launches {
    ($($name:ident = $original:ident, $per_thread:literal;)*) => { $(
        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $name(
            agent: &'static Agent, outcome: &Outcome, exec: CUgraphExec, stream: CUstream,
        ) -> CUresult {
            let name = StreamName { stream, null_is_per_thread: $per_thread };
            let _flight = agent.begin_launch(name);
            agent.graph_launch_begins();
            // SAFETY: the application's own arguments.
            let code = outcome.keep(unsafe { original::$original(exec, stream) });
            launched(agent, code, exec, name);
            code
        }
    )* };
}

graph_launches! {
    graph_launch = graph_launch, false;
    graph_launch_ptsz = graph_launch_ptsz, true;
}

fn launched(agent: &'static Agent, code: CUresult, exec: CUgraphExec, stream: StreamName) {
    if code != sys::SUCCESS {
        return;
    }
    agent.graphs.older.launched(exec);
    let Some(known) = agent.graphs.exec(exec) else {
        return;
    };
    let mut exec = lock(&known);
    exec.mark(agent, stream.handle());
    exec.tell(agent);
    if agent.is_on() || agent.is_late() {
        exec.count();
        agent.launch_happened();
    }
}

/// Has an executable graph take over another graph by `update`.
fn take_over(
    agent: &'static Agent,
    exec: CUgraphExec,
    graph: CUgraph,
    update: impl FnOnce() -> CUresult,
) -> CUresult {
    let mut old = agent.graphs.take(exec);
    // The records of this executable graph, in whatever order: they are zero between its launches.
    let mut records = Records::of(old.uses.iter());
    records.0.extend(&old.spare.0);
    let held = records.0.clone();
    let mut uses = walk::prepare(agent, graph, (old.number, 0), &mut records);
    let code = update();
    if code != sys::SUCCESS {
        // It is as it was. Records that were made for nothing are kept for the next time.
        let made = Records::of(uses.iter()).0.into_iter();
        old.spare.0.extend(made.filter(|r| !held.contains(r)));
        agent.graphs.put_exec(agent, exec, old);
        return code;
    }
    // Nodes of the graph that it was made of stand for those of this one, in their order.
    if uses.len() == old.uses.len() {
        for (new, old) in uses.iter_mut().zip(&old.uses) {
            (new.node, new.enabled) = (old.node, old.enabled);
            new.within.clone_from(&old.within);
        }
    }
    let now = Exec {
        uses,
        spare: records,
        ..old
    };
    agent.graphs.put_exec(agent, exec, now);
    agent.graphs.older.is_newer(exec);
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn exec_update_v1(
    agent: &'static Agent,
    outcome: &Outcome,
    exec: CUgraphExec,
    graph: CUgraph,
    node: *mut CUgraphNode,
    result: *mut c_uint,
) -> CUresult {
    take_over(agent, exec, graph, || {
        // SAFETY: the application's own arguments.
        outcome.keep(unsafe { original::exec_update_v1(exec, graph, node, result) })
    })
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn exec_update_v2(
    agent: &'static Agent,
    outcome: &Outcome,
    exec: CUgraphExec,
    graph: CUgraph,
    result: *mut c_void,
) -> CUresult {
    take_over(agent, exec, graph, || {
        // SAFETY: the application's own arguments.
        outcome.keep(unsafe { original::exec_update_v2(exec, graph, result) })
    })
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn exec_set_graph(
    agent: &'static Agent,
    outcome: &Outcome,
    exec: CUgraphExec,
    node: CUgraphNode,
    child: CUgraph,
) -> CUresult {
    change_child(agent, exec, node, child, || {
        // SAFETY: the application's own arguments.
        outcome.keep(unsafe { original::exec_set_graph(exec, node, child) })
    })
}

/// Has the graph in a node of an executable graph be another one, by `set`.
pub(super) fn change_child(
    agent: &'static Agent,
    exec: CUgraphExec,
    node: CUgraphNode,
    child: CUgraph,
    set: impl FnOnce() -> CUresult,
) -> CUresult {
    let mut now = agent.graphs.take(exec);
    let inside = |it: &Use| it.within.contains(&(node as usize));
    let (old, others): (Vec<Use>, Vec<Use>) = now.uses.into_iter().partition(inside);
    let mut records = Records::of(old.iter());
    let held = records.0.clone();
    records.0.append(&mut now.spare.0);
    let first = old.iter().filter_map(|it| it.at).min();
    let number = first.map_or(0, |_| now.number);
    let mut new = walk::prepare(agent, child, (number, first.unwrap_or(0)), &mut records);
    let code = set();
    now.uses = others;
    if code == sys::SUCCESS {
        let same = new.len() == old.len();
        // The graph is in one then, and whatever is in it.
        let body = !old.is_empty() && old.iter().all(|it| it.body);
        for (at, it) in new.iter_mut().enumerate() {
            it.body |= body;
            match old.get(at).filter(|_| same) {
                Some(old) => {
                    (it.node, it.enabled) = (old.node, old.enabled);
                    it.within.clone_from(&old.within);
                }
                None => (it.within, it.at) = (vec![node as usize], None),
            }
        }
        now.uses.extend(new);
    } else {
        records.0.extend(Records::of(new.iter()).0);
        records.0.retain(|r| !held.contains(r));
        now.uses.extend(old);
    }
    now.spare = records;
    // An update takes them in the order of the graph.
    now.uses.sort_by_key(|it| it.at);
    agent.graphs.put_exec(agent, exec, now);
    code
}

/// Has a node of an executable graph run another kernel, by `set`, which asks for the launch record, and is told what programs are
/// told of the node and whether it is in the body of a conditional node.
pub(super) fn change_node(
    agent: &'static Agent,
    exec: CUgraphExec,
    node: CUgraphNode,
    set: impl FnOnce(&dyn Fn(&Place, &KernelNodeParams) -> Option<u64>, u64, bool) -> (CUresult, Placed),
) -> CUresult {
    let mut now = agent.graphs.take(exec);
    let at = now.uses.iter().position(|it| it.node == node as usize);
    let at = at.unwrap_or_else(|| {
        now.uses.push(Use {
            node: node as usize,
            within: Vec::new(),
            body: agent.graphs.bodies.have(node),
            kernel: None,
            record: None,
            enabled: true,
            at: None,
            launch: 0,
            name: None,
        });
        now.uses.len() - 1
    });
    let told = now.uses[at]
        .at
        .map_or(0, |at| walk::number_of(now.number, at));
    let Exec { uses, spare, .. } = &mut now;
    // A record that other nodes have too is theirs.
    let mine = uses[at].record;
    let alone = uses.iter().filter(|it| it.record == mine).count() == 1;
    let it = &mut uses[at];
    let (own, others) = (Cell::new(it.record), RefCell::new(&mut *spare));
    let record = |place: &Place, given: &KernelNodeParams| {
        let (context, variant) = (place.context()?, place.variant.as_deref()?);
        let bytes = variant.record_bytes(given.grid, given.block)?;
        if bytes == 0 {
            return Some(0);
        }
        if own.get().is_none_or(|own| !own.serves(context, bytes)) {
            own.set(Some(others.borrow_mut().take(variant, context, bytes)?));
        }
        own.get().map(|own| own.address)
    };
    let (code, placed) = set(&record, told, it.body);
    // Until the driver has taken another one, the node runs with its own.
    let (kept, left) = match (code, own.get()) {
        (_, chosen) if chosen == mine => (mine, None),
        (sys::SUCCESS, chosen) => (chosen, mine.filter(|_| alone)),
        (_, refused) => (mine, refused),
    };
    it.record = kept;
    spare.0.extend(left);
    if code == sys::SUCCESS {
        (it.kernel, it.launch) = (placed.kernel, placed.launch);
        it.name = walk::name_for_timeline(agent, placed.given);
    }
    agent.graphs.put_exec(agent, exec, now);
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn node_set_enabled(
    agent: &'static Agent,
    outcome: &Outcome,
    exec: CUgraphExec,
    node: CUgraphNode,
    enabled: c_uint,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let code = outcome.keep(unsafe { original::node_set_enabled(exec, node, enabled) });
    if code == sys::SUCCESS
        && let Some(known) = agent.graphs.exec(exec)
    {
        let mut known = lock(&known);
        for it in known.uses.iter_mut().filter(|it| it.node == node as usize) {
            it.enabled = enabled != 0;
        }
        known.sum_up();
    }
    code
}

#[cfg(test)]
mod tests {
    use warpbpf_session::choices::Choices;

    use super::*;
    use crate::entry::{Chosen, Entry};

    fn record(context: usize, bytes: u64) -> walk::Record {
        walk::Record {
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

//! Executable graphs: their nodes get launch records when they are made, and their launches are
//! those of the kernels in them.

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_uint, c_void};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use warpbpf_driver::sys::{
    self, CUgraph, CUgraphExec, CUgraphNode, CUresult, CUstream, KernelNodeParams,
};
use warpbpf_wire::GraphNode;

use super::walk;
use crate::device::graphs::exec::Exec;
use crate::device::graphs::records::{Placed, Records, Use};
use crate::kernels::entry::Place;
use crate::kernels::fallback::FallbackReason;
use crate::kernels::stream_name::StreamName;
use crate::runtime::agent::Agent;
use crate::sys::guard::Outcome;
use crate::sys::lock::lock;
use crate::sys::original;
use crate::uprobe::api::launched_graph;
use crate::uprobe::sites::timeline_served;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`
const DEVICE_LAUNCH: u64 = 4;

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
    let mut records = agent.graphs.spare_records(&agent.driver);
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
        put_exec(agent, handle, made);
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
    exec.mark(&agent.driver, stream.handle());
    tell_launch(&mut exec, agent);
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
        put_exec(agent, exec, old);
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
    put_exec(agent, exec, now);
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
    put_exec(agent, exec, now);
    code
}

/// Has a node of an executable graph run another kernel, by `set`, which asks for the launch
/// record, and is told what programs are told of the node and whether it is in the body of a
/// conditional node.
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
    put_exec(agent, exec, now);
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

fn put_exec(agent: &'static Agent, handle: CUgraphExec, mut exec: Exec) {
    exec.sum_up();
    if exec.is_wanted() {
        // Its launches come when they come, and may be some that are not seen.
        agent.quiet.give_up();
    }
    lock(&agent.graphs.numbers).insert(handle as usize, exec.number);
    let mut execs = agent
        .graphs
        .execs
        .write()
        .unwrap_or_else(PoisonError::into_inner);
    // The driver may have given out the handle of one that was destroyed unseen.
    execs.remove(&(handle as usize));
    if exec.is_wanted() || timeline_served(agent).is_some() {
        execs.insert(handle as usize, Arc::new(Mutex::new(exec)));
    }
    agent.graphs.n_execs.store(execs.len(), Ordering::Relaxed);
}

/// Tells a timeline of its launch, which this thread has just made.
fn tell_launch(exec: &mut Exec, agent: &'static Agent) {
    if let Some(timeline) = timeline_served(agent)
        && exec.number != 0
    {
        let launch = {
            let number = exec.number;
            let list = |nodes: &[GraphNode]| timeline.list(number, nodes);
            exec.told.launched(list, number, &exec.uses)
        };
        launched_graph(launch);
    }
}

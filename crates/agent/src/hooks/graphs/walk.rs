//! What is in a graph, as the driver tells it, and the nodes in it made ready for an executable
//! graph.

use std::cell::OnceCell;
use std::ffi::c_int;
use std::ptr;
use std::rc::Rc;

use warpbpf_abi::layout::launch::graph_node;
use warpbpf_driver::Driver;
use warpbpf_driver::sys::{
    self, CUgraph, CUgraphNode, KernelNodeParams2, NODE_CONDITIONAL, NODE_GRAPH, NODE_KERNEL,
};
use warpbpf_session::LoadedVariant;

use crate::device::graphs::order::Order;
use crate::device::graphs::records::Record;
use crate::device::graphs::records::{Records, Use};
use crate::device::graphs::state::Variant;
use crate::hooks::choice::Candidate;
use crate::hooks::launch_notes::tell;
use crate::kernels::entry::{Chosen, Entry, Runs};
use crate::kernels::fallback::FallbackReason;
use crate::kernels::shape::count;
use crate::runtime::agent::Agent;
use crate::sys::params::{hidden_of, with_hidden};
use crate::uprobe::sites::timeline_served;

/// A kernel node, in a graph or in one that is in it.
pub(super) struct Found {
    pub(super) node: CUgraphNode,
    /// The nodes that it is in, from the outside.
    pub(super) within: Vec<usize>,
    /// It is in the body of a conditional node.
    body: bool,
    params: KernelNodeParams2,
    /// Which node of its graph it is.
    place: (usize, Rc<Level>),
}

/// A graph, or one in another.
struct Level {
    graph: CUgraph,
    nodes: Vec<CUgraphNode>,
    /// Asked for only where nodes may share a launch record.
    order: OnceCell<Option<Order>>,
}

impl Level {
    /// The first node has ended when the second begins.
    fn is_before(&self, driver: &Driver, first: usize, second: usize) -> bool {
        let ask = || Order::of(driver, self.graph, &self.nodes);
        let order = self.order.get_or_init(ask).as_ref();
        order.is_some_and(|order| order.is_before(first, second))
    }
}

/// All kernel nodes, those in bodies of conditional nodes too. What the driver does not tell is
/// left out.
pub(super) fn kernels(agent: &'static Agent, graph: CUgraph) -> Vec<Found> {
    let mut found = Vec::new();
    collect(agent, (graph, false), &mut Vec::new(), &mut found);
    found
}

fn collect(
    agent: &'static Agent,
    (graph, body): (CUgraph, bool),
    within: &mut Vec<usize>,
    found: &mut Vec<Found>,
) {
    warpbpf_faults::bug("agent/graph-panics");
    let api = &agent.driver.api;
    let mut count = 0;
    // SAFETY: the application's graph; without an array the number is told.
    let code = unsafe { (api.graph_nodes)(graph, ptr::null_mut(), &mut count) };
    if !is_told(agent, "cuGraphGetNodes", code) {
        return;
    }
    let mut nodes = vec![ptr::null_mut(); count];
    // SAFETY: as many elements as said.
    let code = unsafe { (api.graph_nodes)(graph, nodes.as_mut_ptr(), &mut count) };
    if !is_told(agent, "cuGraphGetNodes", code) {
        return;
    }
    nodes.truncate(count);
    let level = Rc::new(Level {
        graph,
        nodes,
        order: OnceCell::new(),
    });
    for (at, node) in level.nodes.iter().copied().enumerate() {
        let mut kind: c_int = -1;
        // SAFETY: a node of the graph and a writable local.
        let code = unsafe { (api.node_type)(node, &mut kind) };
        if !is_told(agent, "cuGraphNodeGetType", code) {
            continue;
        }
        match kind {
            NODE_KERNEL => {
                let mut params = std::mem::MaybeUninit::uninit();
                // SAFETY: as above.
                let code = unsafe { (api.kernel_node)(node, params.as_mut_ptr()) };
                if is_told(agent, "cuGraphKernelNodeGetParams", code) {
                    found.push(Found {
                        node,
                        within: within.clone(),
                        body,
                        // SAFETY: the driver has written it.
                        params: unsafe { params.assume_init() },
                        place: (at, Rc::clone(&level)),
                    });
                }
            }
            NODE_GRAPH => {
                let mut inner = ptr::null_mut();
                // SAFETY: as above.
                let code = unsafe { (api.node_graph)(node, &mut inner) };
                if is_told(agent, "cuGraphChildGraphNodeGetGraph", code) {
                    within.push(node as usize);
                    collect(agent, (inner, body), within, found);
                    within.pop();
                }
            }
            NODE_CONDITIONAL => {
                let bodies = agent.graphs.bodies.of(node);
                if bodies.is_empty() {
                    agent.note(
                        warpbpf_wire::NoteLevel::Warning,
                        "a graph has a conditional node that was added before warpbpf was there, or by a call that it does not see: what is in its bodies is not known, and what block and warp probes and aggregates over blocks count there may be wrong".into(),
                    );
                }
                within.push(node as usize);
                for inner in bodies {
                    collect(agent, (inner, true), within, found);
                }
                within.pop();
            }
            _ => {}
        }
    }
}

/// The driver tells what is in a graph. What it does not tell cannot be made ready, and the user
/// hears of it.
fn is_told(agent: &'static Agent, call: &str, code: sys::CUresult) -> bool {
    if code != sys::SUCCESS {
        agent.note(
            warpbpf_wire::NoteLevel::Warning,
            format!(
                "the driver does not tell what is in a graph (`{call}`: {}): launches of its kernels are not counted, and what block and warp probes and aggregates over blocks count in them may be wrong, in later launches as well",
                agent.driver.error_name(code)
            ),
        );
    }
    code == sys::SUCCESS
}

/// A launch record that nodes of one graph have, and the last of them.
struct Shared {
    record: Record,
    last: usize,
    level: Rc<Level>,
}

/// Gives nodes that count arrivals launch records, for an executable graph of this number that is
/// about to be made of this graph, or to have it in it with its kernels numbered from `first`, and
/// tells what its kernels are. Only nodes that never run at once share a record.
pub(super) fn prepare(
    agent: &'static Agent,
    graph: CUgraph,
    (number, first): (u32, u32),
    records: &mut Records,
) -> Vec<Use> {
    let mut shared = Vec::new();
    let found = (first..).zip(kernels(agent, graph));
    found
        .map(|(at, found)| prepare_one(agent, (number, at), found, records, &mut shared))
        .collect()
}

/// A record of at least so many bytes for a node.
fn record_for(
    agent: &'static Agent,
    (at, level): &(usize, Rc<Level>),
    variant: &LoadedVariant,
    (context, bytes): (usize, u64),
    records: &mut Records,
    shared: &mut Vec<Shared>,
) -> Option<Record> {
    let free = |s: &&mut Shared| {
        s.record.serves(context, bytes)
            && Rc::ptr_eq(&s.level, level)
            && level.is_before(&agent.driver, s.last, *at)
    };
    if let Some(shared) = shared.iter_mut().find(free) {
        shared.last = *at;
        return Some(shared.record);
    }
    let record = records.take(variant, context, bytes)?;
    shared.push(Shared {
        record,
        last: *at,
        level: Rc::clone(level),
    });
    Some(record)
}

fn prepare_one(
    agent: &'static Agent,
    (graph, at): (u32, u32),
    found: Found,
    records: &mut Records,
    shared: &mut Vec<Shared>,
) -> Use {
    let first = &found.params.first;
    let mut it = Use {
        node: found.node as usize,
        within: found.within,
        body: found.body,
        kernel: None,
        record: None,
        enabled: true,
        at: Some(at),
        launch: 0,
        name: None,
    };
    let candidate = Candidate {
        number: None,
        blocks: count(first.grid),
        stream: None,
        // Its ranges were those of its capture.
        now: false,
    };
    let Some(Variant { entry, place }) = agent.graphs.variants.get(first.func as usize) else {
        let wanted = agent.table.get(first.func as usize);
        let wanted = wanted.or_else(|| agent.table.get(found.params.kern as usize));
        let named = match first.func.is_null() {
            true => found.params.kern as usize,
            false => first.func as usize,
        };
        it.name = name_for_timeline(agent, named);
        let generation = agent.generations.now();
        let skips = |entry: &Entry| {
            entry.is_too_dear(generation.number)
                || agent.chosen(generation, entry, candidate) == Some(0)
        };
        it.kernel = wanted.map(|entry| {
            let reason = match agent.is_wanted(entry) {
                false => FallbackReason::Unwanted,
                true if skips(entry) => FallbackReason::Skipped,
                true => FallbackReason::None,
            };
            (entry, reason.runs(agent, entry, generation, candidate))
        });
        return it;
    };
    let chosen = |variant: &LoadedVariant| {
        let hidden = variant.hidden.as_ref().filter(|hidden| hidden.chosen)?;
        // SAFETY: the variant is the node's kernel, and the driver told its parameters.
        let told = unsafe {
            hidden_of(
                variant.params.len(),
                hidden,
                first.kernel_params,
                first.extra,
            )
        };
        told.map(|[.., chosen]| chosen)
    };
    let own = place.variant.as_deref().and_then(chosen);
    let chosen = Chosen {
        own: own.unwrap_or(u64::MAX),
        all: agent.chosen_of(&place.choices, candidate),
    };
    it.kernel = Some((entry, Runs::Variant(place, chosen)));
    if found.body {
        tell_of_body(agent, entry);
    }
    it.name = timeline_served(agent).map(|_| entry.mangled.clone());
    let Some((context, variant)) = place.context().zip(place.variant.as_deref()) else {
        return it;
    };
    let Some(hidden) = variant.hidden else {
        return it;
    };
    // SAFETY: a node whose kernel is the variant, as the driver told it.
    it.launch = unsafe { launch_of(variant, &found.params) }.unwrap_or(0);
    let number = number_of(graph, at);
    let bytes = variant.record_bytes(first.grid, first.block);
    if bytes == Some(0) {
        if hidden.node {
            // SAFETY: as above.
            unsafe { set_hidden(agent, found.node, variant, found.params, (0, number)) };
        }
        return it;
    }
    it.record = bytes.and_then(|bytes| {
        record_for(
            agent,
            &found.place,
            variant,
            (context, bytes),
            records,
            shared,
        )
    });
    match it.record {
        // SAFETY: a node whose kernel is the variant.
        Some(record) => unsafe {
            let values = (record.address, number);
            set_hidden(agent, found.node, variant, found.params, values);
        },
        None => {
            if restore(agent, found.node, variant, found.params) {
                let generation = agent.generations.now();
                let runs = FallbackReason::Record.runs(agent, entry, generation, candidate);
                if found.body {
                    runs.count();
                }
                it.kernel = Some((entry, runs));
                it.launch = 0;
            }
            tell(agent, entry, FallbackReason::Record);
        }
    }
    it
}

/// Its programs run in the body of a conditional node, where no launch is counted. Noted once, by
/// its text.
fn tell_of_body(agent: &Agent, entry: &Entry) {
    agent.note(
        warpbpf_wire::NoteLevel::Info,
        format!(
            "kernel `{}` is in the body of a conditional node; its programs run there as often as the device runs it, which the host is not told: that is not among its launches",
            entry.mangled
        ),
    );
}

/// What programs are told of a node. 0 in graphs that have no number: their nodes would be taken
/// for one another's.
pub(super) fn number_of(graph: u32, at: u32) -> u64 {
    match graph {
        0 => 0,
        graph => graph_node(graph, at),
    }
}

/// The name of a kernel that no program of ours runs in, if there is a timeline.
pub(super) fn name_for_timeline(agent: &'static Agent, handle: usize) -> Option<String> {
    timeline_served(agent)?.kernel_name(handle as u64)
}

/// The number of the launch that the node was put there with.
///
/// # Safety
/// The node's kernel is the variant, and the parameters are what the driver told of it.
unsafe fn launch_of(variant: &LoadedVariant, params: &KernelNodeParams2) -> Option<u64> {
    let (hidden, given) = (variant.hidden?, variant.params.len());
    let first = &params.first;
    // SAFETY: the caller's promise: the hidden parameter is behind the others.
    let [_, number, ..] = unsafe { hidden_of(given, &hidden, first.kernel_params, first.extra)? };
    Some(number)
}

/// Gives a node its launch record, and tells it which one it is.
///
/// # Safety
/// The node's kernel is the variant, and the parameters are what the driver told of it.
unsafe fn set_hidden(
    agent: &'static Agent,
    node: CUgraphNode,
    variant: &LoadedVariant,
    params: KernelNodeParams2,
    (record, at): (u64, u64),
) {
    let (Some(hidden), given) = (variant.hidden, variant.params.len()) else {
        return;
    };
    let first = &params.first;
    let set = |kernel_params, extra| {
        let mut changed = params;
        changed.first.kernel_params = kernel_params;
        changed.first.extra = extra;
        // SAFETY: the node's own parameters, with another record.
        unsafe { (agent.driver.api.set_kernel_node)(node, &changed) }
    };
    // SAFETY: the caller's promise: the hidden parameter is behind the others.
    let done = unsafe {
        let told = hidden_of(given, &hidden, first.kernel_params, first.extra);
        told.and_then(|[_, number, _, chosen]| {
            let values = [record, number, at, chosen];
            with_hidden(
                given,
                &hidden,
                values,
                first.kernel_params,
                first.extra,
                &set,
            )
        })
    };
    if done != Some(sys::SUCCESS) {
        let what = match hidden.counts() {
            true => {
                "given a launch record of its own; if anything else in a graph runs at the same time, what block and warp probes and aggregates over blocks count in it is wrong, in later launches as well"
            }
            false => "told its number; `bpf_gpu_graph_node` is wrong there",
        };
        agent.note(
            warpbpf_wire::NoteLevel::Warning,
            format!(
                "kernel `{}`: a node of a graph cannot be {what}",
                variant.mangled
            ),
        );
    }
}

/// Has a node run the original. The parameters that the variant got more are behind the original's
/// own.
fn restore(
    agent: &'static Agent,
    node: CUgraphNode,
    variant: &LoadedVariant,
    mut params: KernelNodeParams2,
) -> bool {
    params.first.func = variant.original.0;
    params.kern = ptr::null_mut();
    // SAFETY: the original's parameters are the first of the variant's.
    unsafe { (agent.driver.api.set_kernel_node)(node, &params) == sys::SUCCESS }
}

/// Has all kernel nodes of a graph run the originals, and says why.
pub(super) fn restore_all(agent: &'static Agent, graph: CUgraph, why: fn() -> FallbackReason) {
    for found in kernels(agent, graph) {
        let known = agent.graphs.variants.get(found.params.first.func as usize);
        if let Some(Variant { entry, place }) = known
            && place.context().is_some()
            && let Some(variant) = place.variant.as_deref()
            && restore(agent, found.node, variant, found.params)
        {
            tell(agent, entry, why());
        }
    }
}

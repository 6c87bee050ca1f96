//! Graphs: instrumented kernels in nodes, however they came there, and how often executable graphs run them.
//!
//! The driver keeps the graphs, and is asked what is in them: a node whose function is a variant is one of ours, in copies
//! and children of graphs too, so that little has to be remembered here. What is: which captures go on (a captured launch is
//! no launch yet), what the nodes of each executable graph are (its launches are theirs), and which graphs are bodies of
//! conditional nodes: what is in those runs as often as the device likes, which nobody tells the host, and is no launch.
//!
//! A graph may have nodes in several contexts: a variant is known with the context that it lives in, and its launch record is
//! memory there. What is known of graphs that need a context goes with that.
//!
//! A node's launch record is chosen when its graph is instantiated, as an executable graph never runs twice at once: its
//! nodes get records that no other launch uses, and that two of them share only if one has ended before the other begins.

mod bodies;
pub(crate) mod captures;
mod execs;
mod nodes;
mod older;
mod order;
mod tell;
mod walk;

use std::collections::HashMap;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use warpbpf_driver::sys::{self, CUfunction, CUgraph, CUgraphNode, CUresult, CUstream};

use crate::agent::Agent;
use crate::arena::Arena;
use crate::entry::{Entry, Place};
use crate::exports::original;
use crate::guard::Outcome;
use crate::launch::StreamName;
use crate::lock::lock;
use crate::table::Table;

pub(crate) use execs::*;
pub(crate) use nodes::*;
pub(crate) use older::report;

/// See the module.
#[derive(Debug)]
pub(crate) struct Graphs {
    /// There are kernels that programs want, or there were: they may be in a graph.
    used: AtomicBool,
    /// A variant was put into a graph, which may be anywhere by now.
    held: AtomicBool,
    /// Not all of the driver's functions for graphs are hooked: no variant comes into one, because the application could see it there.
    blind: AtomicBool,
    /// From a variant's function to what it is.
    variants: Table<Variant>,
    known: Arena<Variant>,
    pub(crate) captures: captures::Captures,
    /// Executable graphs that hold kernels which programs want; all of them, if there is a timeline.
    execs: RwLock<HashMap<usize, Arc<Mutex<Exec>>>>,
    n_execs: AtomicUsize,
    /// Graphs that were instantiated.
    instantiated: AtomicU32,
    /// Which one of them each executable graph is.
    numbers: Mutex<HashMap<usize, u32>>,
    /// Those that were there before us.
    older: older::Older,
    /// Launch records that no executable graph has now, and those of graphs that may still run.
    spare: Mutex<walk::Records>,
    leftovers: Mutex<Vec<execs::Leftover>>,
    bodies: bodies::Bodies,
}

/// A kernel and what runs in its place in a context. It lives as long as the agent, because a
/// launch may be looking at it.
#[derive(Debug)]
pub(crate) struct Variant {
    entry: &'static Entry,
    place: &'static Place,
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
            captures: captures::Captures::default(),
            execs: RwLock::default(),
            n_execs: AtomicUsize::new(0),
            instantiated: AtomicU32::new(0),
            numbers: Mutex::default(),
            older: older::Older::default(),
            spare: Mutex::default(),
            leftovers: Mutex::default(),
            bodies: bodies::Bodies::default(),
        }
    }
}

impl Graphs {
    /// Hooks have work to do. That goes on after the tool is gone: graphs may hold variants.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// An executable graph holds kernels which programs want, or there may be some of which nobody knows what they hold.
    #[inline]
    pub(crate) fn sees_launches(&self) -> bool {
        self.n_execs.load(Ordering::Relaxed) > 0 || self.older.is_wanted()
    }

    /// Captures matter, which goes on like that: who detaches later must not spoil one.
    #[inline]
    pub(crate) fn sees_captures(&self, agent: &Agent) -> bool {
        agent.is_on() || self.is_used()
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

    /// A context is gone, its variants with it ([`Graphs::forget`] was called for each), and the graphs that held them cannot
    /// run.
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
    pub(crate) fn captured(&self, agent: &'static Agent, stream: StreamName) -> Option<Captured> {
        // Nothing is captured at nearly every launch, and that costs a few loads.
        if !self.captures.may_be_any() && !self.is_blind() {
            return None;
        }
        match is_capturing(agent, stream) {
            Ok(true) => self.captures.found(agent, stream),
            Ok(false) => {
                self.captures.not_found(agent, stream);
                return None;
            }
            // Another stream is captured, and the legacy stream must not be used meanwhile: the launch is the driver's to refuse.
            Err(code) if CAPTURE_ERRORS.contains(&code) => return None,
            Err(code) => return Some(Captured::Unknown(code)),
        }
        Some(match self.bodies.are_none() {
            true => Captured::Graph,
            false => self.captured_into(agent, stream.handle()),
        })
    }

    /// A launch of a kernel that is nobody's business may be the only one in a capture that began before us.
    #[inline]
    pub(crate) fn look_for_capture(&self, agent: &'static Agent, stream: StreamName) {
        if self.captures.is_unseen() && is_capturing(agent, stream) == Ok(true) {
            self.captures.found(agent, stream);
        }
    }

    fn captured_into(&self, agent: &'static Agent, stream: CUstream) -> Captured {
        let (mut status, mut graph) = (0, ptr::null_mut());
        let none = ptr::null_mut();
        // SAFETY: the application's stream and writable locals; the others may be null.
        let code = unsafe {
            let info = agent.driver.api.capture_info;
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
}

/// Without a hook on this function of the driver, kernels come into graphs, or are looked at there, unseen.
pub(crate) fn needs(symbol: &str) -> bool {
    ["cuGraph", "cuStreamBeginCapture", "cuStreamEndCapture"]
        .iter()
        .any(|name| symbol.starts_with(name))
}

/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` to `CUDA_ERROR_CAPTURED_EVENT`: what the driver says of captures themselves.
const CAPTURE_ERRORS: std::ops::RangeInclusive<CUresult> = 900..=907;

/// Whether a stream is captured, or what the driver says instead.
pub(crate) fn is_capturing(agent: &Agent, stream: StreamName) -> Result<bool, CUresult> {
    let mut status: c_int = 0;
    // SAFETY: the application's stream, a writable local.
    let code = unsafe { (agent.driver.api.stream_capturing)(stream.handle(), &mut status) };
    match code {
        sys::SUCCESS => Ok(status != 0),
        code => Err(code),
    }
}

macro_rules! captures {
    ($($begin_v1:ident = $v1_original:ident, $begin:ident = $begin_original:ident, $into:ident = $into_original:ident, $end:ident = $end_original:ident, $per_thread:literal;)*) => { $(
        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $begin_v1(agent: &'static Agent, outcome: &Outcome, stream: CUstream) -> CUresult {
            let _begins = agent.quiet.capture_begins(|| agent.graphs.captures.begins());
            // SAFETY: the application's own arguments.
            let code = outcome.keep(unsafe { original::$v1_original(stream) });
            began(agent, code, StreamName { stream, null_is_per_thread: $per_thread });
            code
        }

        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $begin(agent: &'static Agent, outcome: &Outcome, stream: CUstream, mode: c_int) -> CUresult {
            let _begins = agent.quiet.capture_begins(|| agent.graphs.captures.begins());
            // SAFETY: the application's own arguments.
            let code = outcome.keep(unsafe { original::$begin_original(stream, mode) });
            began(agent, code, StreamName { stream, null_is_per_thread: $per_thread });
            code
        }

        /// # Safety
        /// As the driver's function.
        #[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
        pub(crate) unsafe fn $into(
            agent: &'static Agent, outcome: &Outcome, stream: CUstream, graph: CUgraph, nodes: *const CUgraphNode,
            data: *const std::ffi::c_void, count: usize, mode: c_int,
        ) -> CUresult {
            let _begins = agent.quiet.capture_begins(|| agent.graphs.captures.begins());
            // SAFETY: the application's own arguments.
            let code = unsafe { original::$into_original(stream, graph, nodes, data, count, mode) };
            outcome.keep(code);
            began(agent, code, StreamName { stream, null_is_per_thread: $per_thread });
            code
        }

        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $end(
            agent: &'static Agent, outcome: &Outcome, stream: CUstream, graph: *mut CUgraph,
        ) -> CUresult {
            // SAFETY: the application's own arguments.
            let code = outcome.keep(unsafe { original::$end_original(stream, graph) });
            let stream = StreamName { stream, null_is_per_thread: $per_thread };
            // One that failed may be over, or not.
            if code == sys::SUCCESS || is_capturing(agent, stream) == Ok(false) {
                agent.graphs.captures.note(captures::current(agent), stream.key(), false);
            }
            code
        }
    )* };
}

captures! {
    begin_capture_v1 = begin_capture_v1, begin_capture = begin_capture, begin_capture_into = begin_capture_into, end_capture = end_capture, false;
    begin_capture_v1_ptsz = begin_capture_v1_ptsz, begin_capture_ptsz = begin_capture_ptsz, begin_capture_into_ptsz = begin_capture_into_ptsz,
        end_capture_ptsz = end_capture_ptsz, true;
}

fn began(agent: &'static Agent, code: CUresult, stream: StreamName) {
    if code == sys::SUCCESS {
        (agent.graphs.captures).note(captures::current(agent), stream.key(), true);
    }
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn destroy(agent: &'static Agent, outcome: &Outcome, graph: CUgraph) -> CUresult {
    let mut code = sys::SUCCESS;
    agent.graphs.bodies.without_graph(graph, || {
        // SAFETY: the application's own argument.
        code = outcome.keep(unsafe { original::graph_destroy(graph) });
        code == sys::SUCCESS
    });
    code
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn destroy_node(
    agent: &'static Agent,
    outcome: &Outcome,
    node: CUgraphNode,
) -> CUresult {
    let mut code = sys::SUCCESS;
    agent.graphs.bodies.without_node(node, || {
        // SAFETY: the application's own argument.
        code = outcome.keep(unsafe { original::node_destroy(node) });
        code == sys::SUCCESS
    });
    code
}

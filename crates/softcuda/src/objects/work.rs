//! What streams run and graphs hold. These types know each other: a graph has operations, an
//! operation may be a graph or an event, and an event that was captured stands for places in a
//! graph.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::error::CuError;
use crate::objects::condition::{Choice, Condition};
use crate::objects::fill::Fill;
use crate::objects::handle::{Handle, lock, new_handle};
use crate::objects::kernel_call::{HostCall, KernelCall};
use crate::objects::stream::Run;
use crate::objects::transfer::Transfer;
use crate::objects::user_object::Held;

/// `CUgraphEdgeData`: ports and type. Kept for who asks: a node runs when those before it have
/// ended.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EdgeData([u8; 8]);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Edge {
    pub from: Handle,
    pub to: Handle,
    pub data: EdgeData,
}

pub(crate) struct Node {
    pub handle: Handle,
    /// The node that this is a copy of.
    pub(crate) source: Handle,
    pub operation: Operation,
}

/// Nodes with operations, and edges between them. A graph is a thing that a program builds.
pub(crate) struct Graph {
    pub handle: Handle,
    /// Part of a node: it goes with the node and not by itself.
    pub embedded: bool,
    pub(crate) parts: Mutex<Parts>,
}

#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) nodes: Vec<Node>,
    pub(crate) edges: Vec<Edge>,
    /// Values that choose, made for this graph.
    pub(crate) conditions: Vec<Arc<Condition>>,
    pub(crate) held: Vec<Held>,
}

impl Parts {
    pub(crate) fn index(&self, node: Handle) -> Option<usize> {
        self.nodes.iter().position(|n| n.handle == node)
    }

    /// Indices in an order that the edges allow, of nodes that may go next the one that was added
    /// first.
    pub(crate) fn order(&self) -> Result<Vec<usize>, CuError> {
        let mut waits: Vec<usize> = self
            .nodes
            .iter()
            .map(|node| self.edges.iter().filter(|e| e.to == node.handle).count())
            .collect();
        let mut done = vec![false; self.nodes.len()];
        let mut order = Vec::with_capacity(self.nodes.len());
        while order.len() < self.nodes.len() {
            let next = (0..self.nodes.len()).find(|&n| !done[n] && waits[n] == 0);
            // A cycle.
            let next = next.ok_or(CuError::INVALID_VALUE)?;
            done[next] = true;
            order.push(next);
            for edge in &self.edges {
                if edge.from == self.nodes[next].handle
                    && let Some(to) = self.index(edge.to)
                {
                    waits[to] -= 1;
                }
            }
        }
        Ok(order)
    }
}

/// What a stream runs and what a node of a graph holds.
#[derive(Clone)]
pub(crate) enum Operation {
    Kernel(Arc<KernelCall>),
    Copy(Arc<Transfer>),
    Fill(Fill),
    Host(HostCall),
    /// A graph in a graph.
    Graph(Arc<Graph>),
    /// Graphs of which a value chooses.
    Conditional(Conditional),
    Empty,
    Wait(Arc<Event>),
    Record(Arc<Event>),
}

impl Operation {
    /// `CU_GRAPH_NODE_TYPE_…`
    pub(crate) fn kind(&self) -> u32 {
        match self {
            Operation::Kernel(_) => 0,
            Operation::Copy(_) => 1,
            Operation::Fill(_) => 2,
            Operation::Host(_) => 3,
            Operation::Graph(_) => 4,
            Operation::Empty => 5,
            Operation::Wait(_) => 6,
            Operation::Record(_) => 7,
            Operation::Conditional(_) => 13,
        }
    }

    /// Where it may run. A function of the program runs on the stream's thread, as with a driver:
    /// the program may hold a lock here that its function takes.
    pub(crate) fn place(&self) -> Run {
        match self {
            Operation::Host(_) | Operation::Wait(_) => Run::Elsewhere,
            Operation::Kernel(_)
            | Operation::Copy(_)
            | Operation::Fill(_)
            | Operation::Graph(_)
            | Operation::Conditional(_)
            | Operation::Empty
            | Operation::Record(_) => Run::Here,
        }
    }
}

/// What is in a conditional node.
#[derive(Clone)]
pub(crate) struct Conditional {
    pub condition: Arc<Condition>,
    pub choice: Choice,
    pub bodies: Arc<[Arc<Graph>]>,
    /// Their handles, as the program is shown them.
    pub handles: Arc<[Handle]>,
}

impl Conditional {
    pub(crate) fn new(
        condition: Arc<Condition>,
        choice: Choice,
        bodies: Vec<Arc<Graph>>,
    ) -> Conditional {
        Conditional {
            condition,
            choice,
            handles: bodies.iter().map(|body| body.handle).collect(),
            bodies: bodies.into(),
        }
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

/// What an event stands for that was recorded in a capture.
#[derive(Clone)]
pub(crate) struct Captured {
    pub(crate) capture: Arc<Capture>,
    pub(crate) behind: Vec<(Handle, EdgeData)>,
}

/// A capture that has begun.
pub(crate) struct Capture {
    pub(crate) id: u64,
    pub graph: Arc<Graph>,
    /// The program's own graph is captured into: it stays whatever happens.
    pub(crate) given: bool,
    /// The stream that it began in, and must end in.
    pub(crate) origin: Handle,
    pub(crate) context: Handle,
    pub(crate) mode: c_int,
    /// See [`thread_number`].
    pub(crate) thread: u64,
    pub(crate) state: Mutex<CaptureState>,
}

/// How far a capture has come.
pub(crate) struct CaptureState {
    /// Something happened that no graph can hold, or that has nothing to do in a capture.
    pub(crate) spoiled: bool,
    /// Streams that take part, and what comes next in each comes behind.
    pub(crate) tips: HashMap<Handle, Tip>,
}

#[derive(Default)]
pub(crate) struct Tip {
    pub(crate) behind: Vec<(Handle, EdgeData)>,
    /// As above, for who asked: valid until the next call for this stream.
    pub(crate) shown: (Box<[Handle]>, Box<[EdgeData]>),
}

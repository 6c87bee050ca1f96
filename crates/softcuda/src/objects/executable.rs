//! Graphs that can be run, as they were when they were instantiated.

use std::sync::{Arc, Mutex};

use crate::objects::condition::{Choice, Condition};
use crate::objects::handle::Handle;
use crate::objects::user_object::Held;
use crate::objects::work::Operation;

/// An operation of an executable graph.
pub(crate) struct Step {
    /// The node of the graph that was instantiated.
    pub source: Handle,
    pub operation: Operation,
    pub enabled: bool,
    /// What is in it, if it is a graph; of a conditional node each graph.
    pub inner: Vec<Template>,
}

/// A graph as it was when it was instantiated.
pub(crate) struct Template {
    pub(crate) nodes: Vec<Step>,
    /// By index, sorted.
    pub(crate) edges: Vec<(usize, usize)>,
    pub(crate) order: Vec<usize>,
    pub(crate) conditions: Vec<Arc<Condition>>,
    pub(crate) _held: Vec<Held>,
}

/// An executable graph.
pub(crate) struct Exec {
    pub handle: Handle,
    pub flags: u64,
    pub template: Mutex<Template>,
    /// It never runs twice at once: the second launch waits for the first, in whatever stream.
    pub running: Mutex<()>,
}

/// What an executable graph does, in order.
#[derive(Clone)]
pub(crate) enum Planned {
    Operation(Operation),
    Choice {
        condition: Arc<Condition>,
        choice: Choice,
        bodies: Vec<Vec<Planned>>,
    },
}

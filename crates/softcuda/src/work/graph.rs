//! Graphs: nodes with operations, edges between them, and what can be run of them. A graph is a
//! thing that a program builds; an executable graph is a copy of it that runs, one node after the
//! other in an order that the edges allow.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::error::{CuError, CuResult};
use crate::objects::condition::Condition;
use crate::objects::executable::{Planned, Step, Template};
use crate::objects::handle::{Handle, lock, new_handle};
use crate::objects::user_object::Held;
use crate::objects::work::{Conditional, Edge, EdgeData, Graph, Node, Operation};
use crate::state::Soft;

impl Graph {
    /// A new graph in the tables.
    pub(crate) fn new(soft: &Soft, embedded: bool) -> Arc<Graph> {
        let graph = Arc::new(Graph {
            handle: new_handle(),
            embedded,
            parts: Mutex::default(),
        });
        soft.graphs.add(graph.handle, Arc::clone(&graph));
        graph
    }

    pub(crate) fn hold(&self, held: Held) {
        lock(&self.parts).held.push(held);
    }

    /// Lets an object go that is held so.
    pub(crate) fn release_held(&self, is: impl Fn(&Held) -> bool) -> CuResult {
        let mut parts = lock(&self.parts);
        let at = parts
            .held
            .iter()
            .position(is)
            .ok_or(CuError::INVALID_VALUE)?;
        let held = parts.held.remove(at);
        // What the program does then may ask about this graph.
        drop(parts);
        drop(held);
        Ok(())
    }

    pub(crate) fn add_condition(&self, condition: Arc<Condition>) {
        lock(&self.parts).conditions.push(condition);
    }

    /// The value of this graph, or of one in whose conditional nodes it is, that lies at an
    /// address.
    pub(crate) fn condition(&self, address: u64) -> Option<Arc<Condition>> {
        let parts = lock(&self.parts);
        parts
            .conditions
            .iter()
            .find(|c| c.address == address)
            .cloned()
    }

    /// A node behind others of this graph.
    pub(crate) fn add(
        self: &Arc<Graph>,
        soft: &Soft,
        operation: Operation,
        behind: &[(Handle, EdgeData)],
    ) -> Result<Handle, CuError> {
        let mut parts = lock(&self.parts);
        for (at, (from, _)) in behind.iter().enumerate() {
            let twice = behind[..at].iter().any(|(other, _)| other == from);
            if twice || parts.index(*from).is_none() {
                return Err(CuError::INVALID_VALUE);
            }
        }
        let handle = new_handle();
        parts.nodes.push(Node {
            handle,
            source: handle,
            operation,
        });
        let edge = |&(from, data)| Edge {
            from,
            to: handle,
            data,
        };
        parts.edges.extend(behind.iter().map(edge));
        soft.nodes.add(handle, Arc::clone(self));
        Ok(handle)
    }

    /// Looks at a node, or changes it.
    pub(crate) fn with<T>(
        &self,
        node: Handle,
        look: impl FnOnce(&mut Node) -> T,
    ) -> Result<T, CuError> {
        let mut parts = lock(&self.parts);
        let at = parts.index(node).ok_or(CuError::INVALID_VALUE)?;
        Ok(look(&mut parts.nodes[at]))
    }

    /// Takes a node away, and its edges.
    pub(crate) fn remove(&self, soft: &Soft, node: Handle) -> CuResult {
        let mut parts = lock(&self.parts);
        let at = parts.index(node).ok_or(CuError::INVALID_VALUE)?;
        let node = parts.nodes.remove(at);
        parts
            .edges
            .retain(|e| e.from != node.handle && e.to != node.handle);
        drop(parts);
        forget_node(soft, &node);
        Ok(())
    }

    /// Adds edges, all or none.
    pub(crate) fn connect(&self, new: &[Edge]) -> CuResult {
        let mut parts = lock(&self.parts);
        for (at, edge) in new.iter().enumerate() {
            let same = |other: &Edge| (other.from, other.to) == (edge.from, edge.to);
            let known = parts.index(edge.from).is_some() && parts.index(edge.to).is_some();
            if !known
                || edge.from == edge.to
                || parts.edges.iter().any(same)
                || new[..at].iter().any(same)
            {
                return Err(CuError::INVALID_VALUE);
            }
        }
        parts.edges.extend_from_slice(new);
        Ok(())
    }

    /// Takes edges away, all or none.
    pub(crate) fn disconnect(&self, old: &[Edge]) -> CuResult {
        let mut parts = lock(&self.parts);
        let same = |a: &Edge, b: &Edge| (a.from, a.to, a.data) == (b.from, b.to, b.data);
        if !old.iter().all(|o| parts.edges.iter().any(|e| same(e, o))) {
            return Err(CuError::INVALID_VALUE);
        }
        parts.edges.retain(|e| !old.iter().any(|o| same(e, o)));
        Ok(())
    }

    /// Nodes, the one first that was added first.
    pub(crate) fn nodes(&self) -> Vec<Handle> {
        lock(&self.parts).nodes.iter().map(|n| n.handle).collect()
    }

    pub(crate) fn edges(&self) -> Vec<Edge> {
        lock(&self.parts).edges.clone()
    }

    /// All nodes are before one of `ends`, or are one of them.
    pub(crate) fn reach(&self, ends: &[Handle], nodes: &[Handle]) -> bool {
        let edges = self.edges();
        let mut before: Vec<Handle> = ends.to_vec();
        let mut at = 0;
        while let Some(&node) = before.get(at) {
            at += 1;
            for edge in edges.iter().filter(|e| e.to == node) {
                if !before.contains(&edge.from) {
                    before.push(edge.from);
                }
            }
        }
        nodes.iter().all(|node| before.contains(node))
    }

    /// A copy with nodes of its own, in the tables.
    pub(crate) fn copy(&self, soft: &Soft, embedded: bool) -> Result<Arc<Graph>, CuError> {
        let copy = Graph::new(soft, embedded);
        let parts = lock(&self.parts);
        let mut renamed = HashMap::new();
        for node in &parts.nodes {
            let operation = match &node.operation {
                Operation::Graph(inner) => Operation::Graph(inner.copy(soft, true)?),
                Operation::Conditional(node) => {
                    let bodies = node.bodies.iter().map(|body| body.copy(soft, true));
                    let bodies = bodies.collect::<Result<Vec<_>, _>>()?;
                    let condition = Arc::clone(&node.condition);
                    Operation::Conditional(Conditional::new(condition, node.choice, bodies))
                }
                other => other.clone(),
            };
            let handle = copy.add(soft, operation, &[])?;
            copy.with(handle, |new| new.source = node.handle)?;
            renamed.insert(node.handle, handle);
        }
        let edges: Vec<Edge> = parts
            .edges
            .iter()
            .map(|edge| Edge {
                from: renamed[&edge.from],
                to: renamed[&edge.to],
                data: edge.data,
            })
            .collect();
        copy.connect(&edges)?;
        let mut new = lock(&copy.parts);
        new.conditions = parts.conditions.clone();
        new.held = parts.held.clone();
        drop(new);
        Ok(copy)
    }

    /// The node of this copy that stands for `node` of the graph that was copied.
    pub(crate) fn find_copy(&self, node: Handle) -> Option<Handle> {
        let parts = lock(&self.parts);
        parts.nodes.iter().find_map(|n| match &n.operation {
            _ if n.source == node => Some(n.handle),
            Operation::Graph(inner) => inner.find_copy(node),
            Operation::Conditional(n) => n.bodies.iter().find_map(|body| body.find_copy(node)),
            _ => None,
        })
    }

    /// Takes a graph out of the tables, and what is embedded in it. Whoever runs it goes on.
    pub(crate) fn forget(&self, soft: &Soft) {
        soft.graphs.remove(self.handle);
        let held = std::mem::take(&mut lock(&self.parts).held);
        drop(held);
        for node in &lock(&self.parts).nodes {
            forget_node(soft, node);
        }
    }

    /// What can be run of it.
    pub(crate) fn template(&self) -> Result<Template, CuError> {
        let parts = lock(&self.parts);
        let order = parts.order()?;
        let mut nodes = Vec::new();
        for node in &parts.nodes {
            nodes.push(Step {
                source: node.handle,
                operation: node.operation.clone(),
                enabled: true,
                inner: match &node.operation {
                    Operation::Graph(inner) => vec![inner.template()?],
                    Operation::Conditional(node) => {
                        let bodies = node.bodies.iter().map(|body| body.template());
                        bodies.collect::<Result<_, _>>()?
                    }
                    _ => Vec::new(),
                },
            });
        }
        let index = |node| parts.index(node).ok_or(CuError::INVALID_VALUE);
        let mut edges = Vec::new();
        for edge in &parts.edges {
            edges.push((index(edge.from)?, index(edge.to)?));
        }
        edges.sort_unstable();
        Ok(Template {
            nodes,
            edges,
            order,
            conditions: parts.conditions.clone(),
            _held: parts.held.clone(),
        })
    }
}

fn forget_node(soft: &Soft, node: &Node) {
    soft.nodes.remove(node.handle);
    match &node.operation {
        Operation::Graph(inner) => inner.forget(soft),
        Operation::Conditional(node) => node.bodies.iter().for_each(|body| body.forget(soft)),
        _ => {}
    }
}

/// Why a graph cannot take the place of the one that was instantiated:
/// `CU_GRAPH_EXEC_UPDATE_ERROR_…`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mismatch {
    pub reason: u32,
    /// A node of the new graph.
    pub node: Handle,
    pub from: Handle,
}

const TOPOLOGY_CHANGED: u32 = 2;
const TYPE_CHANGED: u32 = 3;
const PARAMETERS_CHANGED: u32 = 5;
const UNSUPPORTED_FUNCTION_CHANGE: u32 = 7;

impl Template {
    /// All operations in order; those that are switched off are left out.
    pub(crate) fn operations(&self, into: &mut Vec<Planned>) {
        for &at in &self.order {
            let step = &self.nodes[at];
            match &step.operation {
                Operation::Graph(_) => step.inner.iter().for_each(|inner| inner.operations(into)),
                Operation::Conditional(node) => {
                    let bodies = step.inner.iter().map(|body| {
                        let mut planned = Vec::new();
                        body.operations(&mut planned);
                        planned
                    });
                    into.push(Planned::Choice {
                        condition: Arc::clone(&node.condition),
                        choice: node.choice,
                        bodies: bodies.collect(),
                    });
                }
                operation if step.enabled => into.push(Planned::Operation(operation.clone())),
                _ => {}
            }
        }
    }

    /// The values that are set to their defaults at each launch.
    pub(crate) fn conditions(&self, into: &mut Vec<Arc<Condition>>) {
        into.extend(self.conditions.iter().cloned());
        let inner = self.nodes.iter().flat_map(|step| &step.inner);
        inner.for_each(|inner| inner.conditions(into));
    }

    /// The step that stands for a node of the graph that was instantiated, or of one embedded in
    /// it.
    pub(crate) fn step(&mut self, node: Handle) -> Option<&mut Step> {
        self.nodes.iter_mut().find_map(|step| {
            if step.source == node {
                return Some(step);
            }
            step.inner.iter_mut().find_map(|inner| inner.step(node))
        })
    }

    /// Whether another graph has the same shape and may take this one's place.
    pub(crate) fn compare(&self, new: &Template) -> Result<(), Mismatch> {
        let mismatch = |reason, node| Mismatch {
            reason,
            node,
            from: 0,
        };
        for (old, from) in self.nodes.iter().zip(&new.nodes) {
            let new = from;
            if old.operation.kind() != new.operation.kind() {
                return Err(mismatch(TYPE_CHANGED, new.source));
            }
            match (&old.inner[..], &new.inner[..]) {
                (old, new) if !old.is_empty() && old.len() == new.len() => {
                    for (old, new) in old.iter().zip(new) {
                        old.compare(new)?;
                    }
                }
                (old, new) if old.len() != new.len() => {
                    return Err(mismatch(PARAMETERS_CHANGED, from.source));
                }
                _ => may_replace(&old.operation, &new.operation)
                    .map_err(|reason| mismatch(reason, new.source))?,
            }
        }
        if self.nodes.len() != new.nodes.len() {
            let more = new.nodes.get(self.nodes.len());
            return Err(mismatch(TOPOLOGY_CHANGED, more.map_or(0, |n| n.source)));
        }
        if let Some(&(from, to)) = new.edges.iter().find(|e| !self.edges.contains(e)) {
            return Err(Mismatch {
                reason: TOPOLOGY_CHANGED,
                node: new.nodes[to].source,
                from: new.nodes[from].source,
            });
        }
        if self.edges.len() != new.edges.len() {
            return Err(mismatch(TOPOLOGY_CHANGED, 0));
        }
        Ok(())
    }

    /// Takes over what the nodes of a graph of the same shape do. Which node of the program stands
    /// for a step stays.
    pub(crate) fn replace(&mut self, new: Template) {
        for (old, new) in self.nodes.iter_mut().zip(new.nodes) {
            if old.inner.is_empty() {
                old.operation = new.operation;
            }
            for (old, new) in old.inner.iter_mut().zip(new.inner) {
                old.replace(new);
            }
        }
    }
}

/// An executable graph keeps what its nodes are made for: a context, kinds of memory.
pub(crate) fn may_replace(old: &Operation, new: &Operation) -> Result<(), u32> {
    match (old, new) {
        (Operation::Kernel(old), Operation::Kernel(new))
            if old.function.module.context != new.function.module.context =>
        {
            Err(UNSUPPORTED_FUNCTION_CHANGE)
        }
        (Operation::Copy(old), Operation::Copy(new)) if !old.like(new) => Err(PARAMETERS_CHANGED),
        _ => Ok(()),
    }
}

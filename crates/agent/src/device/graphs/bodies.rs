//! Bodies of conditional nodes. The driver has no call that tells them of a node, or the node of a
//! kernel's body, so both are remembered from when they were added.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use warpbpf_driver::sys::{CUgraph, CUgraphNode};

use crate::sys::lock::lock;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Bodies {
    known: Mutex<Known>,
    /// How many there are, for those who need not look.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Known {
    /// Those of each node, in their order, and the graph that the node is in.
    of_nodes: HashMap<usize, (usize, Vec<usize>)>,
    /// The body that a kernel's node was put into.
    of_kernels: HashMap<usize, usize>,
}

impl Known {
    fn contain(&self, graph: usize) -> bool {
        self.of_nodes.values().any(|(_, of)| of.contains(&graph))
    }

    /// Conditional nodes go, and what is in their bodies.
    fn take(&mut self, is_gone: impl Fn(usize, usize) -> bool) -> Known {
        let mut taken = Known::default();
        let of_nodes = &mut self.of_nodes;
        (taken.of_nodes).extend(of_nodes.extract_if(|node, (graph, _)| is_gone(*node, *graph)));
        let bodies = |nodes: &HashMap<usize, (usize, Vec<usize>)>| -> Vec<usize> {
            nodes.values().flat_map(|(_, of)| of).copied().collect()
        };
        let mut gone = bodies(&taken.of_nodes);
        while let Some(body) = gone.pop() {
            let kernels = self.of_kernels.extract_if(|_, of| *of == body);
            taken.of_kernels.extend(kernels);
            let inner = of_nodes
                .extract_if(|_, (graph, _)| *graph == body)
                .collect();
            gone.extend(bodies(&inner));
            taken.of_nodes.extend(inner);
        }
        taken
    }
}

impl Bodies {
    /// There are none, as in nearly every application.
    #[inline]
    pub(crate) fn are_none(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// A conditional node was added to a graph.
    pub(crate) fn add(&self, node: CUgraphNode, graph: CUgraph, bodies: Vec<usize>) {
        let mut known = lock(&self.known);
        known
            .of_nodes
            .insert(node as usize, (graph as usize, bodies));
        self.recount(&known);
    }

    /// The graph is one.
    pub(crate) fn contain(&self, graph: CUgraph) -> bool {
        !self.are_none() && lock(&self.known).contain(graph as usize)
    }

    /// Those of a node.
    pub(crate) fn of(&self, node: CUgraphNode) -> Vec<CUgraph> {
        let known = lock(&self.known);
        let of = known.of_nodes.get(&(node as usize));
        let handles = of.map_or(&[][..], |(_, bodies)| bodies);
        handles.iter().map(|body| *body as CUgraph).collect()
    }

    /// A kernel's node was put into a graph; true if that is a body.
    pub(crate) fn put(&self, node: CUgraphNode, graph: CUgraph) -> bool {
        if self.are_none() {
            return false;
        }
        let mut known = lock(&self.known);
        let body = known.contain(graph as usize);
        match body {
            true => known.of_kernels.insert(node as usize, graph as usize),
            // The driver may have given out the handle of one that is gone.
            false => known.of_kernels.remove(&(node as usize)),
        };
        body
    }

    /// A kernel's node is in one.
    pub(crate) fn have(&self, node: CUgraphNode) -> bool {
        !self.are_none() && lock(&self.known).of_kernels.contains_key(&(node as usize))
    }

    /// A node goes, with its bodies, if `destroy` gives true. Others may be given their handles
    /// then, so they are forgotten before.
    pub(crate) fn without_node(&self, node: CUgraphNode, destroy: impl FnOnce() -> bool) {
        let node = node as usize;
        self.without(destroy, |known| {
            let mut taken = known.take(|of, _| of == node);
            let kernel = known.of_kernels.remove_entry(&node);
            taken.of_kernels.extend(kernel);
            taken
        });
    }

    /// A graph goes, with the bodies in it, as [`Bodies::without_node`] says.
    pub(crate) fn without_graph(&self, graph: CUgraph, destroy: impl FnOnce() -> bool) {
        self.without(destroy, |known| known.take(|_, of| of == graph as usize));
    }

    fn without(&self, destroy: impl FnOnce() -> bool, take: impl FnOnce(&mut Known) -> Known) {
        let taken = match self.are_none() {
            true => Known::default(),
            false => take(&mut lock(&self.known)),
        };
        let is_gone = destroy();
        let mut known = lock(&self.known);
        if !is_gone {
            known.of_nodes.extend(taken.of_nodes);
            known.of_kernels.extend(taken.of_kernels);
        }
        self.recount(&known);
    }

    fn recount(&self, known: &Known) {
        self.count.store(known.of_nodes.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(handle: usize) -> CUgraph {
        handle as CUgraph
    }

    fn node(handle: usize) -> CUgraphNode {
        handle as CUgraphNode
    }

    #[test]
    fn bodies_go_with_the_graph_that_they_are_in() {
        let bodies = Bodies::default();
        assert!(bodies.are_none() && !bodies.put(node(1), graph(100)));
        bodies.add(node(2), graph(1), vec![100, 101]);
        // One in a body of the other.
        bodies.add(node(3), graph(101), vec![102]);
        bodies.add(node(4), graph(2), vec![103]);
        assert_eq!(bodies.of(node(2)), [graph(100), graph(101)]);
        assert_eq!(bodies.of(node(9)), []);
        assert!(bodies.put(node(10), graph(102)) && bodies.put(node(11), graph(103)));
        assert!(!bodies.put(node(12), graph(1)));
        assert!(bodies.have(node(10)) && bodies.have(node(11)) && !bodies.have(node(12)));
        bodies.without_graph(graph(1), || false);
        assert!(
            bodies.contain(graph(102)) && bodies.have(node(10)),
            "it stays"
        );
        bodies.without_graph(graph(1), || true);
        assert!(!bodies.contain(graph(100)) && !bodies.contain(graph(102)));
        assert!(!bodies.have(node(10)) && bodies.have(node(11)));
        assert!(!bodies.are_none());
        bodies.without_node(node(4), || false);
        assert!(bodies.have(node(11)), "it stays");
        bodies.without_node(node(4), || true);
        assert!(bodies.are_none() && !bodies.have(node(11)));
    }

    #[test]
    fn handles_that_are_given_out_again_are_what_they_are_now() {
        let bodies = Bodies::default();
        bodies.add(node(2), graph(1), vec![100]);
        assert!(bodies.put(node(10), graph(100)));
        assert!(!bodies.put(node(10), graph(1)));
        assert!(!bodies.have(node(10)));
        bodies.add(node(2), graph(3), vec![101]);
        assert!(!bodies.contain(graph(100)) && bodies.contain(graph(101)));
    }
}

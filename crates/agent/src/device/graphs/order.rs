//! Which nodes of a graph have ended before others begin: those may use the same launch record.

use std::collections::HashMap;
use std::ptr;

use warpbpf_driver::Driver;
use warpbpf_driver::sys::{self, CUgraph, CUgraphNode};

/// Nodes of larger graphs are not compared, because that takes a bit for each pair.
const MOST_NODES: usize = 8192;

/// For each node of a graph, those before it.
#[derive(Debug)]
pub(crate) struct Order(Vec<Vec<u64>>);

impl Order {
    /// `None` if the driver does not tell, or tells of edges by which a node may begin earlier.
    pub(crate) fn of(driver: &Driver, graph: CUgraph, nodes: &[CUgraphNode]) -> Option<Order> {
        let edges = driver.api.graph_edges;
        let (none, mut count) = (ptr::null_mut(), 0);
        if nodes.len() > MOST_NODES {
            return None;
        }
        // SAFETY: without arrays the number is told.
        if unsafe { edges(graph, none, ptr::null_mut(), &mut count) } != sys::SUCCESS {
            return None;
        }
        let (mut from, mut to) = (vec![ptr::null_mut(); count], vec![ptr::null_mut(); count]);
        // SAFETY: as many elements as said.
        let code = unsafe { edges(graph, from.as_mut_ptr(), to.as_mut_ptr(), &mut count) };
        if code != sys::SUCCESS {
            return None;
        }
        let index: HashMap<CUgraphNode, usize> = nodes.iter().copied().zip(0..).collect();
        let pairs = from.iter().zip(&to).take(count);
        let pairs = pairs.map(|(from, to)| Some((*index.get(from)?, *index.get(to)?)));
        Order::from_edges(nodes.len(), &pairs.collect::<Option<Vec<_>>>()?)
    }

    fn from_edges(n_nodes: usize, edges: &[(usize, usize)]) -> Option<Order> {
        let mut after = vec![Vec::new(); n_nodes];
        let mut waits = vec![0usize; n_nodes];
        for (from, to) in edges {
            after[*from].push(*to);
            waits[*to] += 1;
        }
        let mut before = vec![vec![0u64; n_nodes.div_ceil(64)]; n_nodes];
        let mut ready: Vec<usize> = (0..n_nodes).filter(|n| waits[*n] == 0).collect();
        let mut n_done = 0;
        while let Some(node) = ready.pop() {
            n_done += 1;
            let mut own = before[node].clone();
            own[node / 64] |= 1 << (node % 64);
            for next in std::mem::take(&mut after[node]) {
                for (word, more) in before[next].iter_mut().zip(&own) {
                    *word |= more;
                }
                waits[next] -= 1;
                if waits[next] == 0 {
                    ready.push(next);
                }
            }
        }
        // What has a cycle will not be instantiated.
        (n_done == n_nodes).then_some(Order(before))
    }

    /// The first node has ended when the second begins.
    pub(crate) fn is_before(&self, first: usize, second: usize) -> bool {
        self.0[second][first / 64] >> (first % 64) & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_before_all_that_it_leads_to() {
        // 0 → 1 → 3, 0 → 2 → 3, and 4 by itself.
        let edges = [(1, 3), (0, 1), (2, 3), (0, 2)];
        let order = Order::from_edges(5, &edges).unwrap();
        let all = (0..5).flat_map(|a| (0..5).map(move |b| (a, b)));
        let found: Vec<(usize, usize)> = all.filter(|(a, b)| order.is_before(*a, *b)).collect();
        assert_eq!(found, [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)]);
        assert!(Order::from_edges(2, &[(0, 1), (1, 0)]).is_none());
        let long: Vec<(usize, usize)> = (0..199).map(|n| (n, n + 1)).collect();
        let order = Order::from_edges(200, &long).unwrap();
        assert!(order.is_before(0, 199) && !order.is_before(199, 0));
    }
}

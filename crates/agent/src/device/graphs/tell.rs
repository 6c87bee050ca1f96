//! What a timeline is told of an executable graph: which one it is, how often it was launched, and
//! what its kernels are, each time that they are others.

use warpbpf_wire::{GraphLaunch, GraphNode};

use crate::device::graphs::records::Use;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Told {
    launches: u64,
    /// `nodes` is what its kernels are now.
    current: bool,
    nodes: Vec<GraphNode>,
    /// Number of the list that says so; 0 if there was no room for it.
    list: u32,
}

impl Told {
    /// Its kernels may be others.
    pub(crate) fn changed(&mut self) {
        self.current = false;
    }

    /// It was launched.
    pub(crate) fn launched(
        &mut self,
        list: impl FnOnce(&[GraphNode]) -> u32,
        graph: u32,
        uses: &[Use],
    ) -> GraphLaunch {
        self.launches += 1;
        if !self.current {
            let now: Vec<GraphNode> = uses.iter().filter_map(told).collect();
            // Frameworks update graphs to what is in them already.
            if self.list == 0 || now != self.nodes {
                self.list = list(&now);
                self.nodes = now;
            }
            self.current = true;
        }
        GraphLaunch {
            graph,
            launch: self.launches,
            list: self.list,
        }
    }
}

/// A kernel node; `None` if nobody knows which one it is, or how often it runs.
fn told(it: &Use) -> Option<GraphNode> {
    if it.body {
        return None;
    }
    let programs = it.kernel.is_some_and(|(_, runs)| runs.place().is_some());
    Some(GraphNode {
        node: it.at?,
        kernel: it.name.clone(),
        programs,
        launch: if programs { it.launch } else { 0 },
        disabled: !it.enabled,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::timeline::Timeline;

    fn node(at: u32, enabled: bool) -> Use {
        Use {
            node: 0x10 + at as usize,
            within: Vec::new(),
            body: false,
            kernel: None,
            record: None,
            enabled,
            at: Some(at),
            // Of a variant that is not there any more.
            launch: 5,
            name: Some(format!("k{at}")),
        }
    }

    fn expected(nodes: &[(u32, bool)]) -> Vec<GraphNode> {
        let of = |(at, enabled): &(u32, bool)| GraphNode {
            node: *at,
            kernel: Some(format!("k{at}")),
            programs: false,
            launch: 0,
            disabled: !enabled,
        };
        nodes.iter().map(of).collect()
    }

    #[test]
    fn kernels_are_listed_when_they_are_others() {
        let timeline = Timeline::for_tests(3);
        let mut told = Told::default();
        let mut uses = vec![node(0, true), node(1, true)];
        let mut lost = node(2, true);
        lost.at = None;
        let mut body = node(3, true);
        body.body = true;
        uses.extend([lost, body]);
        let launch = |told: &mut Told, uses: &[Use]| {
            let launch = told.launched(|nodes| timeline.list(7, nodes), 7, uses);
            assert_eq!(launch.graph, 7);
            (launch.launch, launch.list)
        };
        assert_eq!(launch(&mut told, &uses), (1, 1));
        assert_eq!(launch(&mut told, &uses), (2, 1));
        // An update to what is in it.
        told.changed();
        assert_eq!(launch(&mut told, &uses), (3, 1));
        uses[1].enabled = false;
        assert_eq!(launch(&mut told, &uses), (4, 1), "nobody said so");
        told.changed();
        // There is room for three nodes in all lists together.
        assert_eq!(launch(&mut told, &uses), (5, 0));
        uses.truncate(1);
        told.changed();
        assert_eq!(launch(&mut told, &uses), (6, 2));
        let (lists, unlisted) = timeline.take_lists(usize::MAX);
        let found: Vec<_> = lists
            .iter()
            .map(|l| (l.number, l.graph, l.nodes.clone()))
            .collect();
        let all = expected(&[(0, true), (1, true)]);
        assert_eq!(found, [(1, 7, all), (2, 7, expected(&[(0, true)]))]);
        assert_eq!(unlisted, 1);
    }

    #[test]
    fn a_list_is_told_in_parts_and_one_without_kernels_takes_room() {
        let timeline = Timeline::for_tests(9);
        let lists = [(1, 5), (2, 0), (3, 2)];
        for (graph, count) in lists {
            let uses: Vec<Use> = (0..count).map(|at| node(at, true)).collect();
            Told::default().launched(|nodes| timeline.list(graph, nodes), graph, &uses);
        }
        // But for the empty one there would be room for these.
        let two: Vec<Use> = (0..2).map(|at| node(at, true)).collect();
        assert_eq!(
            Told::default()
                .launched(|nodes| timeline.list(4, nodes), 4, &two)
                .list,
            0
        );
        let mut parts = Vec::new();
        loop {
            let (taken, unlisted) = timeline.take_lists(2);
            assert_eq!(unlisted, 1);
            if taken.is_empty() {
                break;
            }
            let part = taken.iter().map(|list| {
                let nodes: Vec<u32> = list.nodes.iter().map(|node| node.node).collect();
                (list.number, list.graph, nodes)
            });
            parts.push(part.collect::<Vec<_>>());
        }
        assert_eq!(
            parts,
            [
                vec![(1, 1, vec![0, 1])],
                vec![(1, 1, vec![2, 3])],
                vec![(1, 1, vec![4]), (2, 2, vec![])],
                vec![(3, 3, vec![0, 1])],
            ]
        );
    }
}

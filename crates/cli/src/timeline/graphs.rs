//! Launches of graphs in the file: which graph, which of its launches, and the kernels that were in
//! it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use warpbpf_session::names::demangle;
use warpbpf_tool::{GraphNode, GraphNodes, Operation};

/// Kernels that are shown at the first launch of their list; all of them are in `otherData`.
const SHOWN: usize = 16;

/// The lists of a process, by their number, each with its first launch.
pub(super) struct Lists<'t>(BTreeMap<u32, (&'t GraphNodes, u64)>);

impl<'t> Lists<'t> {
    pub(super) fn of(graphs: &'t [GraphNodes], operations: &[Operation]) -> Lists<'t> {
        let lists = graphs.iter().map(|list| (list.number, (list, u64::MAX)));
        let mut lists: BTreeMap<_, _> = lists.collect();
        for operation in operations {
            // They come as they end.
            if let Some(launch) = operation.graph
                && let Some((_, first)) = lists.get_mut(&launch.list)
            {
                *first = operation.id.min(*first);
            }
        }
        Lists(lists)
    }

    /// Says of an operation that launches a graph what it was.
    pub(super) fn describe(&self, operation: &Operation, what: &mut Value) {
        let Some(launch) = operation.graph else {
            return;
        };
        what["graph"] = json!(launch.graph);
        what["graph_launch"] = json!(launch.launch);
        if let Some((list, first)) = self.0.get(&launch.list) {
            what["kernel_list"] = json!(list.number);
            if *first == operation.id {
                what["kernels"] = shown(&list.nodes);
            }
        }
    }

    /// All of them.
    pub(super) fn table(&self) -> Value {
        let list = |(list, _): &(&GraphNodes, u64)| json!({ "list": list.number, "graph": list.graph, "kernels": list.nodes.iter().map(whole).collect::<Vec<_>>() });
        self.0.values().map(list).collect()
    }
}

fn name(node: &GraphNode) -> String {
    let kernel = node.kernel.as_deref();
    kernel.map_or_else(|| "?".to_owned(), demangle)
}

fn whole(node: &GraphNode) -> Value {
    let mut made = json!({ "node": node.node, "kernel": name(node), "programs": node.programs });
    if node.launch != 0 {
        made["launch_id"] = json!(node.launch);
    }
    if node.disabled {
        made["disabled"] = json!(true);
    }
    made
}

fn shown(nodes: &[GraphNode]) -> Value {
    let line = |node: &GraphNode| {
        let state = match (node.disabled, node.programs) {
            (true, _) => "turned off",
            (false, true) => "with programs",
            (false, false) => "the original",
        };
        format!("{} {}: {state}", node.node, name(node))
    };
    let mut lines: Vec<String> = nodes.iter().take(SHOWN).map(line).collect();
    if let Some(more) = nodes.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        lines.push(format!("and {more} more"));
    }
    json!(lines)
}

/// What is not known of them.
pub(super) fn unknown(unlisted: u64) -> Option<String> {
    (unlisted > 0).then(|| {
        format!("of graphs that changed {unlisted} times their kernels are not in the timeline: too many are in it")
    })
}

#[cfg(test)]
mod tests {
    use warpbpf_tool::{GraphLaunch, Operations};

    use super::*;

    fn node(at: u32, programs: bool, disabled: bool) -> GraphNode {
        GraphNode {
            node: at,
            kernel: (at != 2).then(|| "_Z9vectorAddPKfS0_Pfi".to_owned()),
            programs,
            launch: u64::from(programs) * 4,
            disabled,
        }
    }

    fn launch(list: &GraphNodes, asked: u32, id: u64) -> Operation {
        Operation {
            id,
            graph: Some(GraphLaunch {
                graph: list.graph,
                launch: 9,
                list: asked,
            }),
            ..Operation::default()
        }
    }

    fn told(list: &GraphNodes, operations: &[Operation]) -> Operations {
        Operations {
            operations: operations.to_vec(),
            graphs: vec![list.clone()],
            ..Operations::default()
        }
    }

    fn described(list: &GraphNodes, asked: u32) -> Value {
        let (launch, mut what) = (launch(list, asked, 7), json!({}));
        let told = told(list, std::slice::from_ref(&launch));
        Lists::of(&told.graphs, &told.operations).describe(&launch, &mut what);
        what
    }

    #[test]
    fn kernels_are_shown_at_the_first_launch_of_a_list() {
        let list = GraphNodes {
            number: 3,
            graph: 2,
            nodes: vec![node(0, true, false)],
        };
        // The second has ended first.
        let told = told(&list, &[launch(&list, 3, 8), launch(&list, 3, 7)]);
        let lists = Lists::of(&told.graphs, &told.operations);
        let described = |at: usize| {
            let mut what = json!({});
            lists.describe(&told.operations[at], &mut what);
            what
        };
        let shown = json!(["0 vectorAdd: with programs"]);
        assert_eq!(described(1)["kernels"], shown);
        assert_eq!(
            described(0),
            json!({ "graph": 2, "graph_launch": 9, "kernel_list": 3 })
        );
    }

    #[test]
    fn a_launch_says_what_was_in_its_graph() {
        let mut list = GraphNodes {
            number: 3,
            graph: 2,
            nodes: vec![
                node(0, true, false),
                node(1, true, true),
                node(2, false, false),
            ],
        };
        let kernels = [
            "0 vectorAdd: with programs",
            "1 vectorAdd: turned off",
            "2 ?: the original",
        ];
        assert_eq!(
            described(&list, 3),
            json!({ "graph": 2, "graph_launch": 9, "kernel_list": 3, "kernels": kernels })
        );
        assert_eq!(
            described(&list, 0),
            json!({ "graph": 2, "graph_launch": 9 }),
            "there was no room for its list"
        );
        let table = Lists::of(&told(&list, &[]).graphs, &[]).table();
        assert_eq!(
            table[0]["kernels"][1],
            json!({ "node": 1, "kernel": "vectorAdd", "programs": true, "launch_id": 4, "disabled": true })
        );
        assert_eq!(
            table[0]["kernels"][2],
            json!({ "node": 2, "kernel": "?", "programs": false })
        );
        list.nodes = (0..20).map(|at| node(at, true, false)).collect();
        let many = described(&list, 3);
        assert_eq!(many["kernels"].as_array().map(Vec::len), Some(SHOWN + 1));
        assert_eq!(many["kernels"][SHOWN], "and 4 more");
    }

    #[test]
    fn operations_that_launch_no_graph_say_nothing() {
        let mut what = json!({});
        Lists::of(&[], &[]).describe(&Operation::default(), &mut what);
        assert_eq!(what, json!({}));
        assert_eq!(unknown(0), None);
        assert!(unknown(2).is_some_and(|text| text.contains("changed 2 times")));
    }
}

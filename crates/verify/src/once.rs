//! Calls that aggregate over a block ([`Warp::WholeBlock`]): each thread of the block must make
//! them exactly once, because whoever completes the count gets the result. A thread that came twice
//! would complete it too early; one that does not come would leave it open, for the launches that
//! follow too.
//!
//! So such a call stands where every thread of a block comes once, at a kernel's start or end in
//! scope `thread`, and in the graph of the program it is in no cycle and on every way to an end.
//! That is asked of the edges that can be taken, and not of paths: a branch around the call is
//! refused even if its condition were the same in all threads.

use warpbpf_abi::attach::Scope;
use warpbpf_abi::helpers::Warp;
use warpbpf_ebpf::Insn;
use warpbpf_flow::BitSet;

use crate::broken::Broken;
use crate::event::Event;
use crate::graph::Graph;
use crate::platform::Platform;
use crate::rule::Rule;

/// Looks at all such calls of a proved program.
///
/// # Errors
/// [`Rule::NotOnce`]: not every thread of the block makes the call exactly once.
pub fn check(graph: &Graph<'_>) -> Result<(), Box<Broken>> {
    let platform = graph.env.platform;
    let calls = graph.helper_calls();
    for (node, helper) in calls.filter(|(_, h)| h.warp == Warp::WholeBlock) {
        let broken = |(why, advice), path| {
            Box::new(Broken {
                rule: Rule::NotOnce {
                    helper: helper.name,
                    why,
                    advice,
                },
                pc: graph.at(node).pc,
                path,
                values: Vec::new(),
            })
        };
        if let Some(reason) = elsewhere(platform) {
            return Err(broken(reason, Vec::new()));
        }
        if reached(graph, graph.cfg.succs(node), None).contains(node) {
            let reason = (
                "and it stands in a loop or in a callback".to_owned(),
                "make the call behind the loop, with what was added up in it",
            );
            return Err(broken(reason, Vec::new()));
        }
        if let Some((branch, to)) = way_around(graph, node) {
            let pc = graph.at(branch).pc;
            let slot = graph.env.code.slot(pc);
            let reason = match graph.insn(branch) {
                // Often nobody wrote it: `--bound-loops` puts it there.
                Insn::MayGoto { .. } => (
                    format!("and the loop that is ended early at instruction {slot} leads past it"),
                    "make the call before the loop, or give the loop a constant bound",
                ),
                _ => (
                    format!("and the branch at instruction {slot} leads past it"),
                    "make the call on every path, with a value that changes nothing where it is not wanted (`wanted ? x : 0`)",
                ),
            };
            let taken = graph.at(to).pc != pc.next();
            return Err(broken(reason, vec![Event::Branch { pc, taken }]));
        }
    }
    Ok(())
}

/// Why not every thread of a block comes exactly once to where the program is, and what to do.
fn elsewhere(platform: &Platform) -> Option<(String, &'static str)> {
    if platform.memory.is_some() {
        return Some((
            "and this program runs by itself, not in a kernel that is launched".to_owned(),
            "use it in a program at `gpu/entry` or `gpu/exit`",
        ));
    }
    if platform.site.is_in_middle() {
        return Some((
            format!(
                "and threads come to `gpu/{}` as often as they like",
                platform.site.word()
            ),
            "use it in a program at `gpu/entry` or `gpu/exit`",
        ));
    }
    match platform.scope {
        Scope::Thread => None,
        Scope::Warp | Scope::Block => Some((
            format!(
                "and in scope `{}` one thread runs for others",
                platform.scope.word()
            ),
            "attach with scope `thread`",
        )),
    }
}

/// All nodes that can be reached from `from`, these included, without going through `around`.
fn reached(graph: &Graph<'_>, from: &[usize], around: Option<usize>) -> BitSet<usize> {
    let mut seen: BitSet<usize> = BitSet::with_capacity(graph.len());
    let mut work: Vec<usize> = from.to_vec();
    while let Some(node) = work.pop() {
        if Some(node) != around && seen.insert(node) {
            work.extend(graph.cfg.succs(node));
        }
    }
    seen
}

/// A branch before the call, and where it goes that leads past it. There is one if an end can be
/// reached around the call: on the way there is a last node from which the call can still be
/// reached.
fn way_around(graph: &Graph<'_>, call: usize) -> Option<(usize, usize)> {
    let mut leads: BitSet<usize> = BitSet::with_capacity(graph.len());
    let mut work = vec![call];
    while let Some(node) = work.pop() {
        if leads.insert(node) {
            work.extend(graph.cfg.preds(node));
        }
    }
    let before = reached(graph, &[0], Some(call));
    let mut ways = before
        .iter()
        .filter(|&node| leads.contains(node))
        .flat_map(|node| graph.cfg.succs(node).iter().map(move |&to| (node, to)));
    ways.find(|&(_, to)| !leads.contains(to))
}

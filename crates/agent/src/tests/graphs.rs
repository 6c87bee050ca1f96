//! An application that puts its kernel into graphs, over a driver that keeps graphs and runs
//! nothing: what stands in nodes, what is told of them, and what counts as a launch.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::Duration;

use warpbpf_driver::sys::{
    CUgraphNode, CUresult, GraphNodeParams, KernelNodeParams, KernelNodeParams2, NODE_CONDITIONAL,
    NODE_GRAPH, NODE_KERNEL,
};
use warpbpf_wire::ToAgent;

use super::attached::{Application, counts, notes};
use crate::hooks::graphs;
use crate::sys::guard::Outcome;
use crate::sys::original::trampolines;

mod choices;

/// A kernel node: its function, its one parameter, and what is behind that if the function is not
/// the original.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    func: usize,
    grid: u32,
    value: u64,
    hidden: Option<[u64; 3]>,
}

/// Graphs and nodes by their handles; a graph may be in one that stands before it.
#[derive(Debug, Default)]
struct Driver {
    original: usize,
    nodes: Vec<(usize, Node)>,
    /// In graph, node, what it is.
    children: Vec<(usize, usize, usize)>,
    /// Graphs with a conditional node; its bodies are 70 and 71.
    conditional: Vec<usize>,
    /// Edges among kernel nodes.
    edges: Vec<(usize, usize)>,
    execs: Vec<Vec<Node>>,
    /// Executable graphs that were launched still run.
    busy: bool,
    /// Events that were made, and are not destroyed.
    n_events: usize,
    /// Functions that nodes must not have.
    refuse_others: bool,
    /// Nodes of executable graphs stay as they are.
    refuse_changes: bool,
    /// Where a node's parameters lie that were told.
    told: (u64, [u64; 3], [usize; 2]),
}

thread_local! {
    static DRIVER: RefCell<Driver> = RefCell::default();
}

fn driver<T>(look: impl FnOnce(&mut Driver) -> T) -> T {
    DRIVER.with_borrow_mut(|driver| look(driver))
}

impl Driver {
    /// # Safety
    /// Parameters of the kernel, or of its variant.
    unsafe fn read(&self, params: *const KernelNodeParams2) -> Result<Node, CUresult> {
        // SAFETY: the caller's promise.
        unsafe {
            let KernelNodeParams2 { first, kern, .. } = *params;
            let func = if first.func.is_null() {
                kern
            } else {
                first.func
            } as usize;
            let ours = func != self.original;
            if ours && self.refuse_others {
                return Err(1);
            }
            let hidden = || **first.kernel_params.add(1).cast::<*const [u64; 3]>();
            Ok(Node {
                func,
                grid: first.grid[0],
                value: **first.kernel_params.cast::<*const u64>(),
                hidden: ours.then(hidden),
            })
        }
    }

    fn nodes_of(&self, graph: usize) -> Vec<Node> {
        let own = self.nodes.iter().filter(|(of, _)| *of == graph);
        let mut all: Vec<Node> = own.map(|(_, node)| node.clone()).collect();
        for (_, _, inner) in self.children.iter().filter(|(of, _, _)| *of == graph) {
            all.extend(self.nodes_of(*inner));
        }
        for _ in self.conditional.iter().filter(|of| **of == graph) {
            all.extend(BODIES.iter().flat_map(|body| self.nodes_of(*body)));
        }
        all
    }
}

/// Graphs of a conditional node. There is one such node in a test.
static BODIES: [usize; 2] = [70, 71];

/// Handles: kernel nodes from 1,000, child nodes from 2,000, executable graphs from 3,000,
/// conditional nodes from 4,000.
fn index(handle: usize, first: usize) -> usize {
    handle - first
}

fn code(result: Result<(), CUresult>) -> CUresult {
    result.err().unwrap_or(0)
}

unsafe extern "C" fn add(
    node: *mut usize,
    graph: usize,
    _behind: *const usize,
    _count: usize,
    params: *const KernelNodeParams2,
) -> CUresult {
    code(driver(|d| {
        // SAFETY: callers pass what CUDA asks for.
        let read = unsafe { d.read(params)? };
        d.nodes.push((graph, read));
        // SAFETY: as above.
        unsafe { *node = 999 + d.nodes.len() };
        Ok(())
    }))
}
unsafe extern "C" fn set(node: usize, params: *const KernelNodeParams2) -> CUresult {
    code(driver(|d| {
        // SAFETY: as above.
        d.nodes[index(node, 1000)].1 = unsafe { d.read(params)? };
        Ok(())
    }))
}
unsafe extern "C" fn get(node: usize, params: *mut KernelNodeParams2) -> CUresult {
    driver(|d| {
        let node = d.nodes[index(node, 1000)].1.clone();
        d.told.0 = node.value;
        d.told.1 = node.hidden.unwrap_or_default();
        d.told.2 = [
            (&raw const d.told.0) as usize,
            (&raw const d.told.1) as usize,
        ];
        // SAFETY: as above.
        unsafe { *params = params_of(node.func, node.grid, (&raw mut d.told.2).cast()) };
    });
    0
}
unsafe extern "C" fn set_in_exec(
    exec: usize,
    node: usize,
    params: *const KernelNodeParams2,
) -> CUresult {
    code(driver(|d| {
        if d.refuse_changes {
            return Err(1);
        }
        // SAFETY: as above.
        d.execs[index(exec, 3000)][index(node, 1000)] = unsafe { d.read(params)? };
        Ok(())
    }))
}
unsafe extern "C" fn add_any(
    node: *mut usize,
    graph: usize,
    _behind: *const usize,
    _data: *const c_void,
    _count: usize,
    params: *mut GraphNodeParams,
) -> CUresult {
    // SAFETY: as above.
    let given = unsafe { &mut *params };
    match given.kind {
        NODE_KERNEL => {
            // SAFETY: as above.
            return unsafe { add(node, graph, ptr::null(), 0, given.value.as_ptr().cast()) };
        }
        NODE_GRAPH => driver(|d| {
            d.children
                .push((graph, 2000 + d.children.len(), given.value[0] as usize));
            // SAFETY: as above.
            unsafe { *node = 1999 + d.children.len() };
        }),
        NODE_CONDITIONAL => {
            given.value[2] = BODIES.as_ptr() as u64;
            driver(|d| d.conditional.push(graph));
            // SAFETY: as above.
            unsafe { *node = 4000 };
        }
        _ => return 1,
    }
    0
}
unsafe extern "C" fn list(graph: usize, nodes: *mut usize, count: *mut usize) -> CUresult {
    driver(|d| {
        let own = (1000..).zip(&d.nodes).filter(|(_, (of, _))| *of == graph);
        let mut all: Vec<usize> = own.map(|(handle, _)| handle).collect();
        all.extend(d.children.iter().filter(|c| c.0 == graph).map(|c| c.1));
        all.extend((d.conditional.iter().filter(|of| **of == graph)).map(|_| 4000));
        // SAFETY: as above.
        unsafe {
            if !nodes.is_null() {
                ptr::copy_nonoverlapping(all.as_ptr(), nodes, all.len());
            }
            *count = all.len();
        }
    });
    0
}
unsafe extern "C" fn edges(
    _graph: usize,
    from: *mut usize,
    to: *mut usize,
    count: *mut usize,
) -> CUresult {
    driver(|d| {
        for (at, (first, second)) in d.edges.iter().enumerate().filter(|_| !from.is_null()) {
            // SAFETY: as above.
            unsafe { (*from.add(at), *to.add(at)) = (*first, *second) };
        }
        // SAFETY: as above.
        unsafe { *count = d.edges.len() };
    });
    0
}
unsafe extern "C" fn event_create(event: *mut usize, _flags: u32) -> CUresult {
    // SAFETY: as above.
    unsafe { *event = 5000 };
    let made = super::world::answer("cuEventCreate");
    driver(|d| d.n_events += usize::from(made.is_ok()));
    code(made)
}
unsafe extern "C" fn event_record(_event: usize, _stream: usize) -> CUresult {
    code(super::world::answer("cuEventRecord"))
}
unsafe extern "C" fn context_event(_context: usize, _event: usize) -> CUresult {
    code(super::world::answer("cuCtxRecordEvent"))
}
unsafe extern "C" fn event_query(_event: usize) -> CUresult {
    let busy = super::world::is_busy("cuEventQuery") || driver(|d| d.busy);
    if busy { 600 } else { 0 }
}
unsafe extern "C" fn event_destroy(_event: usize) -> CUresult {
    // It may be another thread's.
    driver(|d| d.n_events = d.n_events.saturating_sub(1));
    0
}
unsafe extern "C" fn exec_destroy(_exec: usize) -> CUresult {
    0
}
unsafe extern "C" fn kind(node: usize, to: *mut c_int) -> CUresult {
    // SAFETY: as above.
    unsafe {
        *to = match node {
            1000..2000 => NODE_KERNEL,
            2000..3000 => NODE_GRAPH,
            _ => NODE_CONDITIONAL,
        }
    };
    0
}
unsafe extern "C" fn inner(node: usize, to: *mut usize) -> CUresult {
    // SAFETY: as above.
    unsafe { *to = driver(|d| d.children[index(node, 2000)].2) };
    0
}
unsafe extern "C" fn instantiate(exec: *mut usize, graph: usize, _flags: u64) -> CUresult {
    driver(|d| {
        d.execs.push(d.nodes_of(graph));
        // SAFETY: as above.
        unsafe { *exec = 2999 + d.execs.len() };
    });
    0
}
unsafe extern "C" fn update(exec: usize, graph: usize, _result: *mut c_void) -> CUresult {
    driver(|d| {
        let new = d.nodes_of(graph);
        let old = &mut d.execs[index(exec, 3000)];
        if new.len() != old.len() {
            return 910;
        }
        *old = new;
        0
    })
}
unsafe extern "C" fn launch(_exec: usize, _stream: usize) -> CUresult {
    0
}

/// The functions behind our own calls.
pub(super) fn address(symbol: &str) -> Option<usize> {
    Some(match symbol {
        "cuGraphGetNodes" => list as *const () as usize,
        "cuGraphGetEdges" => edges as *const () as usize,
        "cuEventCreate" => event_create as *const () as usize,
        "cuEventRecord" => event_record as *const () as usize,
        "cuCtxRecordEvent" => context_event as *const () as usize,
        "cuEventQuery" => event_query as *const () as usize,
        "cuEventDestroy_v2" => event_destroy as *const () as usize,
        "cuGraphNodeGetType" => kind as *const () as usize,
        "cuGraphChildGraphNodeGetGraph" => inner as *const () as usize,
        "cuGraphKernelNodeGetParams_v2" => get as *const () as usize,
        "cuGraphKernelNodeSetParams_v2" => set as *const () as usize,
        _ => return None,
    })
}

/// Sets the functions that the application calls.
fn connect() {
    use std::sync::atomic::Ordering::Relaxed;
    trampolines::graph_add_kernel_v2.store(add as *const () as usize, Relaxed);
    trampolines::graph_set_kernel_v2.store(set as *const () as usize, Relaxed);
    trampolines::graph_get_kernel_v2.store(get as *const () as usize, Relaxed);
    trampolines::exec_set_kernel_v2.store(set_in_exec as *const () as usize, Relaxed);
    trampolines::graph_add_node_v2.store(add_any as *const () as usize, Relaxed);
    trampolines::instantiate_with_flags.store(instantiate as *const () as usize, Relaxed);
    trampolines::exec_update_v2.store(update as *const () as usize, Relaxed);
    trampolines::exec_destroy.store(exec_destroy as *const () as usize, Relaxed);
    trampolines::graph_launch.store(launch as *const () as usize, Relaxed);
}

fn params_of(func: usize, blocks: u32, list: *mut *mut c_void) -> KernelNodeParams2 {
    KernelNodeParams2 {
        first: KernelNodeParams {
            func: func as *mut c_void,
            grid: [blocks, 1, 1],
            block: [32, 1, 1],
            shared_mem_bytes: 0,
            kernel_params: list,
            extra: ptr::null_mut(),
        },
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    }
}

/// An application with its kernel at hand.
struct Test {
    app: Application,
    original: usize,
}

impl Test {
    fn new() -> Test {
        Test::of(Application::new())
    }

    fn of(mut app: Application) -> Test {
        connect();
        let module = app.load();
        let original = app.function(module);
        driver(|d| {
            *d = Driver::default();
            d.original = original;
        });
        Test { app, original }
    }

    /// Calls `call` with the parameters of a kernel of this many blocks, whose own parameter is 5.
    fn with<T>(&self, blocks: u32, call: impl FnOnce(&KernelNodeParams2) -> T) -> T {
        let mut value = 5u64;
        let mut list = [(&raw mut value).cast::<c_void>()];
        call(&params_of(self.original, blocks, list.as_mut_ptr()))
    }

    fn add(&self, graph: usize, blocks: u32) -> usize {
        let mut node: CUgraphNode = ptr::null_mut();
        let outcome = Outcome::default();
        let code = self.with(blocks, |params| {
            // SAFETY: locals, as CUDA asks.
            unsafe {
                let (agent, graph) = (self.app.agent, graph as *mut c_void);
                graphs::add_kernel_node_v2(
                    agent,
                    &outcome,
                    &mut node,
                    graph,
                    ptr::null(),
                    0,
                    params,
                )
            }
        });
        assert_eq!(code, 0);
        node as usize
    }

    /// A node that is no kernel's.
    fn add_any(&self, graph: usize, kind: c_int, value: [u64; 2]) {
        let mut node = ptr::null_mut();
        let mut params = GraphNodeParams {
            kind,
            reserved0: [0; 3],
            value: [0; 29],
            reserved2: 0,
        };
        params.value[..2].copy_from_slice(&value);
        let (agent, outcome) = (self.app.agent, Outcome::default());
        let (graph, none) = (graph as *mut c_void, ptr::null());
        // SAFETY: as above.
        let code = unsafe {
            graphs::add_node_v2(
                agent,
                &outcome,
                &mut node,
                graph,
                none,
                ptr::null(),
                0,
                &mut params,
            )
        };
        assert_eq!(code, 0);
    }

    fn instantiate(&self, graph: usize, flags: u64) -> usize {
        let (mut exec, outcome) = (ptr::null_mut(), Outcome::default());
        let graph = graph as *mut c_void;
        // SAFETY: as above.
        let code = unsafe {
            graphs::instantiate_with_flags(self.app.agent, &outcome, &mut exec, graph, flags)
        };
        assert_eq!(code, 0);
        exec as usize
    }

    fn launch(&self, exec: usize, times: usize) {
        for _ in 0..times {
            let (outcome, none) = (Outcome::default(), ptr::null_mut());
            // SAFETY: as above.
            let code = unsafe {
                graphs::graph_launch(self.app.agent, &outcome, exec as *mut c_void, none)
            };
            assert_eq!(code, 0);
        }
    }

    fn destroy(&self, exec: usize) {
        let outcome = Outcome::default();
        // SAFETY: as above.
        let code = unsafe { graphs::exec_destroy(self.app.agent, &outcome, exec as *mut c_void) };
        assert_eq!(code, 0);
    }

    fn update(&self, exec: usize, graph: usize) -> CUresult {
        let (outcome, none) = (Outcome::default(), ptr::null_mut());
        let (exec, graph) = (exec as *mut c_void, graph as *mut c_void);
        // SAFETY: as above.
        unsafe { graphs::exec_update_v2(self.app.agent, &outcome, exec, graph, none) }
    }

    /// Whether the variant is in each node of an executable graph, and with which launch records.
    fn exec(&self, exec: usize) -> (Vec<bool>, Vec<u64>) {
        let nodes = driver(|d| d.execs[index(exec, 3000)].clone());
        assert!(nodes.iter().all(|n| n.value == 5));
        let ours = nodes.iter().map(|n| n.func != self.original).collect();
        let records = nodes.iter().filter_map(|n| n.hidden);
        (ours, records.map(|[record, ..]| record).collect())
    }

    /// Which node of a graph programs are told that they are in.
    fn numbers(&self, exec: usize) -> Vec<u64> {
        let nodes = driver(|d| d.execs[index(exec, 3000)].clone());
        let told = nodes.iter().filter_map(|n| n.hidden);
        told.map(|[.., node]| node).collect()
    }

    /// Has a node of an executable graph run the kernel with so many blocks.
    fn change(&self, exec: usize, node: usize, blocks: u32) -> CUresult {
        let outcome = Outcome::default();
        self.with(blocks, |params| {
            let (exec, node) = (exec as *mut c_void, node as *mut c_void);
            // SAFETY: locals, as CUDA asks.
            unsafe {
                graphs::set_kernel_node_in_exec_v2(self.app.agent, &outcome, exec, node, params)
            }
        })
    }

    /// What the application is told of a node: its function.
    fn told(&self, node: usize) -> usize {
        let mut params = params_of(0, 0, ptr::null_mut());
        let outcome = Outcome::default();
        let node = node as *mut c_void;
        // SAFETY: as above.
        let code =
            unsafe { graphs::get_kernel_node_v2(self.app.agent, &outcome, node, &mut params) };
        assert_eq!(code, 0);
        params.first.func as usize
    }

    /// Launches and fallbacks that the tool hears of, and what it is told apart from the kernel's
    /// registers.
    fn end(mut self) -> (u64, u64, Vec<String>) {
        let said = self.app.said();
        let [inc] = counts(&said).try_into().unwrap();
        let texts = notes(&said)
            .into_iter()
            .skip(1)
            .map(str::to_owned)
            .collect();
        (inc.launches, inc.uninstrumented, texts)
    }
}

fn distinct(records: &[u64]) -> bool {
    let mut sorted = records.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted.len() == records.len()
}

#[test]
fn each_node_of_each_executable_graph_has_a_launch_record_of_its_own() {
    let test = Test::new();
    let nodes = [test.add(1, 4), test.add(1, 4), test.add(2, 100)];
    test.add_any(1, NODE_GRAPH, [2, 0]);
    for node in nodes {
        assert_eq!(test.told(node), test.original);
    }
    let (one, two) = (test.instantiate(1, 0), test.instantiate(1, 0));
    let ((ours, first), (_, second)) = (test.exec(one), test.exec(two));
    assert_eq!(ours, [true; 3]);
    assert!(distinct(&[first.clone(), second].concat()));
    test.launch(one, 2);
    test.launch(two, 1);
    // An executable graph keeps its records whatever it takes over, and gets no others.
    for _ in 0..3 {
        assert_eq!(test.update(one, 1), 0);
        let (_, mut now) = test.exec(one);
        let mut before = first.clone();
        now.sort_unstable();
        before.sort_unstable();
        assert_eq!(now, before);
    }
    assert_eq!(test.update(one, 2), 910, "another shape");
    test.launch(one, 1);
    // A node that becomes larger than its record.
    assert_eq!(test.change(one, nodes[0], 1000), 0);
    let (_, now) = test.exec(one);
    assert!(distinct(&now) && !first.contains(&now[0]));
    test.launch(one, 1);
    assert_eq!(test.end(), (5 * 3, 0, vec![]));
}

#[test]
fn a_node_that_the_driver_does_not_change_keeps_its_launch_record() {
    let test = Test::new();
    let nodes = [test.add(1, 100), test.add(1, 4)];
    let exec = test.instantiate(1, 0);
    let (_, first) = test.exec(exec);
    driver(|d| d.refuse_changes = true);
    assert_eq!(test.change(exec, nodes[0], 1000), 1);
    assert_eq!(test.exec(exec), (vec![true; 2], first.clone()));
    driver(|d| d.refuse_changes = false);
    // The other one gets what was made for nothing, not what the first still has.
    assert_eq!(test.change(exec, nodes[1], 50), 0);
    let (_, now) = test.exec(exec);
    assert_eq!(now[0], first[0]);
    assert!(!first.contains(&now[1]));
    // And back: what the driver takes frees the one before.
    assert_eq!(test.change(exec, nodes[0], 900), 0);
    assert_eq!(test.change(exec, nodes[1], 1000), 0);
    let (_, last) = test.exec(exec);
    assert!(distinct(&last) && !last.contains(&now[0]));
    let told = |node: u64| 1 << 32 | node;
    assert_eq!(test.numbers(exec), [told(0), told(1)]);
    test.end();
}

#[test]
fn nodes_of_graphs_that_were_there_before_have_no_numbers() {
    let test = Test::new();
    let nodes = [test.add(1, 4), test.add(1, 4)];
    let exec = test.instantiate(1, 0);
    assert_eq!(test.numbers(exec), [1 << 32, 1 << 32 | 1]);
    // One that nobody saw coming takes the graph over.
    let older = driver(|d| {
        let plain = |node: &Node| Node {
            func: d.original,
            hidden: None,
            ..node.clone()
        };
        let plain: Vec<Node> = d.nodes.iter().map(|(_, node)| plain(node)).collect();
        d.execs.push(plain);
        2999 + d.execs.len()
    });
    assert_eq!(
        (test.update(older, 1), test.numbers(older)),
        (0, vec![0; 2])
    );
    assert_eq!(test.change(older, nodes[1], 8), 0);
    assert_eq!(test.numbers(older), [0; 2]);
    // The graph's own nodes stand for those of the next one that is made of it.
    let next = test.instantiate(1, 0);
    assert_eq!(test.numbers(next), [2 << 32, 2 << 32 | 1]);
    assert_eq!(test.numbers(exec), [1 << 32, 1 << 32 | 1]);
    test.end();
}

#[test]
fn nodes_that_never_run_at_once_share_a_launch_record() {
    let test = Test::new();
    let nodes = [4, 4, 100, 4].map(|blocks| test.add(1, blocks));
    let [fork, left, _, join] = nodes;
    // The second and the third node may run at once.
    driver(|d| {
        let pairs = [
            (fork, left),
            (left, join),
            (fork, nodes[2]),
            (nodes[2], join),
        ];
        d.edges = pairs.to_vec();
    });
    let exec = test.instantiate(1, 0);
    let (_, records) = test.exec(exec);
    assert_eq!((records[1], records[3]), (records[0], records[0]));
    assert!(!records[..2].contains(&records[2]));
    // A node that grows takes none that others have, and what they have stays theirs.
    assert_eq!(test.change(exec, left, 500), 0);
    let (_, now) = test.exec(exec);
    assert_eq!(
        (now[0], now[2], now[3]),
        (records[0], records[2], records[3])
    );
    assert!(!records.contains(&now[1]));
}

#[test]
fn launch_records_are_used_again_when_their_graph_has_ended() {
    let test = Test::new();
    test.add(1, 4);
    let records = |exec| test.exec(exec).1;
    let never = test.instantiate(1, 0);
    let first = records(never);
    test.destroy(never);
    let exec = test.instantiate(1, 0);
    assert_eq!(records(exec), first, "one that never ran");
    driver(|d| d.busy = true);
    test.launch(exec, 2);
    test.destroy(exec);
    let meanwhile = test.instantiate(1, 0);
    assert_ne!(records(meanwhile), first, "it may still run");
    driver(|d| d.busy = false);
    let after = test.instantiate(1, 0);
    assert_eq!((records(after), driver(|d| d.n_events)), (first, 0));
    assert_eq!(test.end(), (2, 0, vec![]));
}

#[test]
fn what_the_driver_refuses_runs_the_original_and_counts_at_each_launch() {
    let test = Test::new();
    driver(|d| d.refuse_others = true);
    let node = test.add(1, 4);
    assert_eq!(test.told(node), test.original);
    let exec = test.instantiate(1, 0);
    test.launch(exec, 3);
    assert_eq!(test.exec(exec).0, [false]);
    let (launches, uninstrumented, notes) = test.end();
    assert_eq!((launches, uninstrumented), (0, 3));
    let expected = "kernel `inc`: the driver refuses to launch it with probes (CUDA_ERROR_FAKE); those launches run without them";
    assert_eq!(notes, [expected]);
}

#[test]
fn programs_run_in_bodies_and_are_no_launches() {
    let test = Test::new();
    // A conditional node with two bodies, one of them with another graph in it.
    test.add_any(1, NODE_CONDITIONAL, [0, 2 << 32]);
    test.add(1, 4);
    let body = test.add(71, 4);
    test.add(2, 4);
    test.add_any(70, NODE_GRAPH, [2, 0]);
    assert_eq!(test.told(body), test.original);
    let exec = test.instantiate(1, 0);
    let (ours, mut records) = test.exec(exec);
    assert_eq!(ours, [true; 3]);
    records.sort_unstable();
    records.dedup();
    assert!(records.len() == 3 && records[0] != 0, "{records:x?}");
    test.launch(exec, 3);
    // Changed in the graph, and in the executable graph.
    let outcome = Outcome::default();
    test.with(8, |params| {
        // SAFETY: locals, as CUDA asks.
        let code = unsafe {
            graphs::set_kernel_node_v2(test.app.agent, &outcome, body as *mut c_void, params)
        };
        assert_eq!((code, test.told(body)), (0, test.original));
    });
    assert_eq!(test.update(exec, 1), 0);
    assert_eq!(test.exec(exec).0, [true; 3]);
    assert_eq!(test.change(exec, body, 4), 0);
    test.launch(exec, 2);
    let (launches, uninstrumented, notes) = test.end();
    assert_eq!((launches, uninstrumented), (5, 0));
    let expected = "kernel `inc` is in the body of a conditional node; its programs run there as often as the device runs it, which the host is not told: that is not among its launches";
    assert_eq!(notes, [expected]);
}

#[test]
fn in_bodies_that_refuse_variants_originals_run_and_count_once() {
    let test = Test::new();
    driver(|d| d.refuse_others = true);
    test.add_any(1, NODE_CONDITIONAL, [0, 2 << 32]);
    let body = test.add(71, 4);
    let exec = test.instantiate(1, 0);
    test.launch(exec, 3);
    let outcome = Outcome::default();
    test.with(8, |params| {
        // SAFETY: locals, as CUDA asks.
        let code = unsafe {
            graphs::set_kernel_node_v2(test.app.agent, &outcome, body as *mut c_void, params)
        };
        assert_eq!(code, 0);
    });
    assert_eq!(test.change(exec, body, 4), 0);
    let (launches, uninstrumented, _) = test.end();
    assert_eq!(
        (launches, uninstrumented),
        (0, 3),
        "each time it was put there"
    );
}

#[test]
fn a_conditional_node_that_nobody_saw_is_told_of() {
    let test = Test::new();
    test.add(1, 4);
    driver(|d| d.conditional.push(1));
    let exec = test.instantiate(1, 0);
    test.launch(exec, 2);
    let (launches, uninstrumented, notes) = test.end();
    assert_eq!((launches, uninstrumented), (2, 0));
    let expected = "a graph has a conditional node that was added before warpbpf was there, or by a call that it does not see: what is in its bodies is not known, and what block and warp probes and aggregates over blocks count there may be wrong";
    assert_eq!(notes, [expected]);
}

#[test]
fn graphs_that_kernels_launch_run_the_original() {
    let test = Test::new();
    test.add(3, 4);
    assert_ne!(driver(|d| d.nodes[0].1.func), test.original);
    let exec = test.instantiate(3, 4);
    assert_eq!(test.exec(exec).0, [false]);
    test.launch(exec, 1);
    let (launches, uninstrumented, notes) = test.end();
    assert_eq!((launches, uninstrumented), (0, 1));
    let expected =
        "kernel `inc` is in a graph that kernels may launch; there it runs without probes";
    assert_eq!(notes, [expected]);
}

#[test]
fn graphs_with_variants_outlive_the_tool() {
    let mut test = Test::new();
    let node = test.add(1, 4);
    let exec = test.instantiate(1, 0);
    test.launch(exec, 1);
    let second = Duration::from_secs(1);
    let tool = test.app.tool.as_mut().unwrap();
    tool.send(&ToAgent::Detach, &[], None, second).unwrap();
    while test.app.agent.is_on() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // The variant is still there, and the application still does not see it.
    assert_eq!(test.told(node), test.original);
    test.launch(exec, 1);
    assert_eq!(test.exec(exec).0, [true]);
    // What is added now runs the original, and an executable graph takes it over.
    test.add(2, 4);
    assert_eq!((test.update(exec, 2), test.exec(exec).0), (0, vec![false]));
    assert_eq!((test.update(exec, 1), test.exec(exec).0), (0, vec![true]));
    let (launches, uninstrumented, _) = test.end();
    assert_eq!((launches, uninstrumented), (1, 0));
}

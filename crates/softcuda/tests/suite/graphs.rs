//! Graphs and stream capture, through the driver's exported functions. Captures restrict other
//! threads, so these tests run one at a time, while no other test has a context.

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::Alone;
use warpbpf_softcuda::Handle;
use warpbpf_softcuda::driver::graph_nodes::{HostParams, KernelParams, KernelParams2};
use warpbpf_softcuda::driver::table::*;
use warpbpf_softcuda::objects::fill::FillParams;

/// `*at = *at * factor + term`, by one thread.
const PTX: &str = r"
.version 8.0
.target sm_80
.address_size 64

.visible .entry step(.param .u64 at, .param .u32 factor, .param .u32 term) {
    .reg .u64 %rd<2>;
    .reg .u32 %r<4>;
    ld.param.u64 %rd1, [at];
    ld.param.u32 %r1, [factor];
    ld.param.u32 %r2, [term];
    ld.global.u32 %r3, [%rd1];
    mad.lo.u32 %r3, %r3, %r1, %r2;
    st.global.u32 [%rd1], %r3;
    ret;
}

.visible .entry stops() {
    trap;
}
";

const INVALID_VALUE: u32 = 1;
const ILLEGAL_STATE: u32 = 401;
const UNSUPPORTED: u32 = 900;
const INVALIDATED: u32 = 901;
const MERGE: u32 = 902;
const UNMATCHED: u32 = 903;
const UNJOINED: u32 = 904;
const ISOLATION: u32 = 905;
const IMPLICIT: u32 = 906;
const CAPTURED_EVENT: u32 = 907;
const WRONG_THREAD: u32 = 908;
const UPDATE_FAILURE: u32 = 910;

/// A context with the module in it, current on this thread; no other test runs meanwhile.
struct World {
    context: Handle,
    step: Handle,
    stops: Handle,
    _alone: Alone,
}

impl World {
    fn new() -> World {
        let alone = Alone::new();
        let text = CString::new(PTX).expect("no NUL");
        let (mut context, mut module, mut step, mut stops) = (0, 0, 0, 0);
        // SAFETY: valid pointers and C strings.
        unsafe {
            assert_eq!(cuInit(0), 0);
            assert_eq!(cuCtxCreate_v2(&raw mut context, 0, 0), 0);
            assert_eq!(cuModuleLoadData(&raw mut module, text.as_ptr().cast()), 0);
            let get = |to: *mut Handle, name: &std::ffi::CStr| {
                cuModuleGetFunction(to, module, name.as_ptr())
            };
            assert_eq!(get(&raw mut step, c"step"), 0);
            assert_eq!(get(&raw mut stops, c"stops"), 0);
        }
        World {
            context,
            step,
            stops,
            _alone: alone,
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // SAFETY: no pointers.
        unsafe { cuCtxDestroy_v2(self.context) };
    }
}

/// The parameters of one `step`.
struct Step {
    values: (u64, u32, u32),
    list: [*mut c_void; 3],
}

impl Step {
    fn new(at: u64, factor: u32, term: u32) -> Box<Step> {
        let mut step = Box::new(Step {
            values: (at, factor, term),
            list: [null_mut(); 3],
        });
        let values = &raw mut step.values;
        // SAFETY: fields of a box that stays where it is.
        unsafe {
            step.list = [
                (&raw mut (*values).0).cast(),
                (&raw mut (*values).1).cast(),
                (&raw mut (*values).2).cast(),
            ];
        }
        step
    }

    fn params(&mut self, function: Handle) -> KernelParams2 {
        KernelParams2 {
            first: KernelParams {
                function,
                grid: [1; 3],
                block: [1; 3],
                shared: 0,
                params: self.list.as_mut_ptr(),
                extra: null_mut(),
            },
            kernel: 0,
            context: 0,
        }
    }
}

fn alloc(value: u32) -> u64 {
    let mut address = 0;
    // SAFETY: a valid pointer.
    unsafe {
        assert_eq!(cuMemAlloc_v2(&raw mut address, 4), 0);
        assert_eq!(cuMemsetD32_v2(address, value, 1), 0);
    }
    address
}

fn read(address: u64) -> u32 {
    let mut value = 0u32;
    // SAFETY: a valid pointer.
    let code = unsafe { cuMemcpyDtoH_v2((&raw mut value).cast(), address, 4) };
    assert_eq!(code, 0);
    value
}

fn graph() -> Handle {
    let mut graph = 0;
    // SAFETY: a valid pointer.
    assert_eq!(unsafe { cuGraphCreate(&raw mut graph, 0) }, 0);
    graph
}

fn add(graph: Handle, behind: &[Handle], function: Handle, step: &mut Step) -> Handle {
    let (mut node, params) = (0, step.params(function));
    // SAFETY: valid pointers.
    let code = unsafe {
        cuGraphAddKernelNode_v2(
            &raw mut node,
            graph,
            behind.as_ptr(),
            behind.len(),
            &raw const params,
        )
    };
    assert_eq!(code, 0);
    node
}

fn instantiate(graph: Handle) -> Handle {
    let mut exec = 0;
    // SAFETY: a valid pointer.
    let code = unsafe { cuGraphInstantiateWithFlags(&raw mut exec, graph, 0) };
    assert_eq!(code, 0);
    exec
}

fn run(exec: Handle) {
    // SAFETY: no pointers.
    unsafe {
        assert_eq!(cuGraphLaunch(exec, 0), 0);
        assert_eq!(cuStreamSynchronize(0), 0);
    }
}

fn stream() -> Handle {
    let mut stream = 0;
    // SAFETY: a valid pointer.
    assert_eq!(unsafe { cuStreamCreate(&raw mut stream, 1) }, 0);
    stream
}

fn event() -> Handle {
    let mut event = 0;
    // SAFETY: a valid pointer.
    assert_eq!(unsafe { cuEventCreate(&raw mut event, 0) }, 0);
    event
}

fn launch(function: Handle, stream: Handle, step: &mut Step) -> u32 {
    // SAFETY: the kernel's parameters.
    unsafe {
        cuLaunchKernel(
            function,
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            stream,
            step.list.as_mut_ptr(),
            null_mut(),
        )
    }
}

fn begin(stream: Handle, mode: i32) -> u32 {
    // SAFETY: no pointers.
    unsafe { cuStreamBeginCapture_v2(stream, mode) }
}

/// The answer, and the graph if there is one.
fn end(stream: Handle) -> (u32, Handle) {
    let mut graph = 7;
    // SAFETY: a valid pointer.
    let code = unsafe { cuStreamEndCapture(stream, &raw mut graph) };
    (code, graph)
}

fn status(stream: Handle) -> (u32, i32) {
    let mut status = -1;
    // SAFETY: a valid pointer.
    let code = unsafe { cuStreamIsCapturing(stream, &raw mut status) };
    (code, status)
}

/// Handles that `list` gives, asked as programs do: how many, then which.
fn all(list: impl Fn(*mut Handle, *mut usize) -> u32) -> Vec<Handle> {
    let mut count = 0;
    assert_eq!(list(null_mut(), &raw mut count), 0);
    let mut handles = vec![9; count + 1];
    let mut room = handles.len();
    assert_eq!(list(handles.as_mut_ptr(), &raw mut room), 0);
    assert_eq!((room, handles.pop()), (count, Some(0)));
    handles
}

fn nodes(graph: Handle) -> Vec<Handle> {
    // SAFETY: valid pointers.
    all(|to, count| unsafe { cuGraphGetNodes(graph, to, count) })
}

#[test]
fn nodes_run_in_the_order_of_their_edges() {
    let world = World::new();
    let at = alloc(1);
    let graph = graph();
    // Added against their order: (1 * 10 + 3) * 2 + 5.
    let last = add(graph, &[], world.step, &mut Step::new(at, 2, 5));
    let first = add(graph, &[], world.step, &mut Step::new(at, 10, 3));
    // SAFETY: valid pointers throughout.
    unsafe {
        assert_eq!(cuGraphAddDependencies(graph, &first, &last, 1), 0);
        assert_eq!(
            cuGraphAddDependencies(graph, &first, &last, 1),
            INVALID_VALUE,
            "twice"
        );
        assert_eq!(
            cuGraphAddDependencies(graph, &first, &first, 1),
            INVALID_VALUE
        );
        assert_eq!(nodes(graph), [last, first]);
        assert_eq!(
            all(|to, count| cuGraphGetRootNodes(graph, to, count)),
            [first]
        );
        assert_eq!(
            all(|to, n| cuGraphNodeGetDependencies(last, to, n)),
            [first]
        );
        assert_eq!(
            all(|to, n| cuGraphNodeGetDependentNodes(first, to, n)),
            [last]
        );
        assert_eq!(
            all(|to, n| cuGraphGetEdges(graph, to, null_mut(), n)),
            [first]
        );
        assert_eq!(
            all(|to, n| cuGraphGetEdges_v2(graph, null_mut(), to, null_mut(), n)),
            [last]
        );
        let exec = instantiate(graph);
        run(exec);
        assert_eq!(read(at), 31);
        // What was instantiated does not change with the graph, nor end with it.
        assert_eq!(cuGraphRemoveDependencies(graph, &first, &last, 1), 0);
        assert_eq!(cuGraphAddDependencies(graph, &last, &first, 1), 0);
        assert_eq!(cuMemsetD32_v2(at, 1, 1), 0);
        run(exec);
        assert_eq!(read(at), 31);
        let other = instantiate(graph);
        assert_eq!(cuGraphDestroy(graph), 0);
        assert_eq!(cuGraphDestroy(graph), INVALID_VALUE);
        assert_eq!(cuMemsetD32_v2(at, 1, 1), 0);
        run(other);
        assert_eq!(read(at), 73);
        assert_eq!(cuGraphExecDestroy(other), 0);
        assert_eq!(cuGraphLaunch(other, 0), INVALID_VALUE);
        let mut kind = 9;
        assert_eq!(
            cuGraphNodeGetType(first, &raw mut kind),
            INVALID_VALUE,
            "gone with its graph"
        );
    }
}

#[test]
fn a_cycle_is_not_instantiated() {
    let world = World::new();
    let (at, graph) = (alloc(1), graph());
    let one = add(graph, &[], world.step, &mut Step::new(at, 1, 1));
    let two = add(graph, &[one], world.step, &mut Step::new(at, 1, 1));
    let mut exec = 0;
    // SAFETY: valid pointers.
    unsafe {
        assert_eq!(cuGraphAddDependencies(graph, &two, &one, 1), 0);
        assert_eq!(
            cuGraphInstantiateWithFlags(&raw mut exec, graph, 0),
            INVALID_VALUE
        );
        assert_eq!(cuGraphDestroyNode(two), 0);
        assert_eq!(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0), 0);
    }
    run(exec);
    assert_eq!(read(at), 2);
}

#[test]
fn parameters_are_told_and_changed() {
    let world = World::new();
    let (at, graph) = (alloc(1), graph());
    let node = add(graph, &[], world.step, &mut Step::new(at, 3, 4));
    let exec = instantiate(graph);
    // SAFETY: valid pointers throughout.
    unsafe {
        let mut told = Step::new(0, 0, 0).params(0);
        assert_eq!(cuGraphKernelNodeGetParams_v2(node, &raw mut told), 0);
        assert_eq!(
            (told.first.function, told.kernel, told.first.grid),
            (world.step, 0, [1; 3])
        );
        let list = std::slice::from_raw_parts(told.first.params, 3);
        assert_eq!(
            (
                *list[0].cast::<u64>(),
                *list[1].cast::<u32>(),
                *list[2].cast::<u32>()
            ),
            (at, 3, 4)
        );
        // What was told may be given again, in part changed.
        let mut term = 9u32;
        let mut changed = [list[0], list[1], (&raw mut term).cast()];
        told.first.params = changed.as_mut_ptr();
        assert_eq!(cuGraphKernelNodeSetParams_v2(node, &raw const told), 0);
        run(exec);
        assert_eq!(read(at), 7, "the executable graph is as it was");
        run(instantiate(graph));
        assert_eq!(read(at), 7 * 3 + 9);
        assert_eq!(
            cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const told),
            0
        );
        run(exec);
        assert_eq!(read(at), 30 * 3 + 9);
        told.first.grid = [0, 1, 1];
        assert_eq!(
            cuGraphKernelNodeSetParams_v2(node, &raw const told),
            INVALID_VALUE
        );
        let mut enabled = 7;
        assert_eq!(cuGraphNodeSetEnabled(exec, node, 0), 0);
        assert_eq!(
            (cuGraphNodeGetEnabled(exec, node, &raw mut enabled), enabled),
            (0, 0)
        );
        run(exec);
        assert_eq!(read(at), 99, "switched off");
        let mut attribute = [1, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            cuGraphKernelNodeSetAttribute(node, 2, &raw const attribute),
            0
        );
        attribute[0] = 0;
        assert_eq!(
            cuGraphKernelNodeGetAttribute(node, 2, &raw mut attribute),
            0
        );
        assert_eq!(attribute[0], 1, "cooperative");
    }
}

extern "C" fn count(data: *mut c_void) {
    // SAFETY: the tests pass a counter.
    unsafe { (*data.cast::<AtomicU32>()).fetch_add(1, Ordering::Relaxed) };
}

#[test]
fn nodes_of_every_kind() {
    let world = World::new();
    let (from, to, graph) = (alloc(5), alloc(0), graph());
    let calls = AtomicU32::new(0);
    let (recorded, mut kind) = (event(), 9);
    let mut added = Vec::new();
    // SAFETY: valid pointers throughout.
    unsafe {
        let mut node = 0;
        let set = FillParams {
            address: from,
            pitch: 0,
            value: 0x0202,
            element: 2,
            width: 2,
            height: 1,
        };
        assert_eq!(
            cuGraphAddMemsetNode(
                &raw mut node,
                graph,
                null(),
                0,
                &raw const set,
                world.context
            ),
            0
        );
        added.push(node);
        let copy = warpbpf_softcuda::objects::transfer::Copy3d::between(
            (2, from, 4, 1, [0; 3]),
            (2, to, 4, 1, [0; 3]),
            [4, 1, 1],
        );
        assert_eq!(
            cuGraphAddMemcpyNode(
                &raw mut node,
                graph,
                &added[0],
                1,
                &raw const copy,
                world.context
            ),
            0
        );
        added.push(node);
        let host = HostParams {
            function: Some(count),
            data: (&raw const calls).cast_mut().cast(),
        };
        assert_eq!(
            cuGraphAddHostNode(&raw mut node, graph, &added[1], 1, &raw const host),
            0
        );
        added.push(node);
        assert_eq!(
            cuGraphAddEmptyNode(&raw mut node, graph, added.as_ptr(), 3),
            0
        );
        added.push(node);
        assert_eq!(
            cuGraphAddEventRecordNode(&raw mut node, graph, &added[3], 1, recorded),
            0
        );
        added.push(node);
        assert_eq!(
            cuGraphAddEventWaitNode(&raw mut node, graph, &added[4], 1, recorded),
            0
        );
        added.push(node);
        let kinds: Vec<i32> = added
            .iter()
            .map(|node| {
                assert_eq!(cuGraphNodeGetType(*node, &raw mut kind), 0);
                kind
            })
            .collect();
        assert_eq!(kinds, [2, 1, 3, 5, 7, 6]);
        let exec = instantiate(graph);
        run(exec);
        run(exec);
        assert_eq!(
            (
                read(to),
                calls.load(Ordering::Relaxed),
                cuEventQuery(recorded)
            ),
            (0x0202_0202, 2, 0)
        );
        let mut told = set;
        told.address = 0;
        assert_eq!(
            (cuGraphMemsetNodeGetParams(added[0], &raw mut told), told),
            (0, set)
        );
        told.element = 3;
        assert_eq!(
            cuGraphMemsetNodeSetParams(added[0], &raw const told),
            INVALID_VALUE
        );
        assert_eq!(
            cuGraphMemsetNodeSetParams(added[1], &raw const set),
            INVALID_VALUE,
            "another kind"
        );
        let mut which = 0;
        assert_eq!(
            (
                cuGraphEventWaitNodeGetEvent(added[5], &raw mut which),
                which
            ),
            (0, recorded)
        );
    }
}

#[test]
fn graphs_are_copied_and_put_into_graphs() {
    let world = World::new();
    let (at, child) = (alloc(1), graph());
    let own = add(child, &[], world.step, &mut Step::new(at, 2, 0));
    let (parent, mut node, mut inner, mut found) = (graph(), 0, 0, 0);
    // SAFETY: valid pointers throughout.
    unsafe {
        assert_eq!(
            cuGraphAddChildGraphNode(&raw mut node, parent, null(), 0, child),
            0
        );
        add(parent, &[node], world.step, &mut Step::new(at, 1, 1));
        assert_eq!(cuGraphChildGraphNodeGetGraph(node, &raw mut inner), 0);
        assert_ne!(inner, child);
        assert_eq!(
            cuGraphDestroy(inner),
            INVALID_VALUE,
            "it goes with its node"
        );
        assert_eq!(cuGraphNodeFindInClone(&raw mut found, own, inner), 0);
        assert_eq!(nodes(inner), [found]);
        let mut copy = 0;
        assert_eq!(cuGraphClone(&raw mut copy, parent), 0);
        assert_eq!(cuGraphNodeFindInClone(&raw mut found, node, copy), 0);
        assert_eq!(nodes(copy)[0], found);
        assert_eq!(cuGraphDestroy(child), 0);
        let exec = instantiate(copy);
        assert_eq!((cuGraphDestroy(copy), cuGraphDestroy(parent)), (0, 0));
        run(exec);
        run(exec);
        assert_eq!(read(at), (2 + 1) * 2 + 1);
    }
}

#[test]
fn an_executable_graph_takes_over_another_graph_of_its_shape() {
    let world = World::new();
    let at = alloc(1);
    let make = |factor, more: bool| {
        let graph = graph();
        let first = add(graph, &[], world.step, &mut Step::new(at, factor, 0));
        if more {
            add(graph, &[first], world.step, &mut Step::new(at, 1, 1));
        }
        graph
    };
    let (old, new, larger) = (make(2, false), make(5, false), make(5, true));
    let exec = instantiate(old);
    let (mut error_node, mut result) = (9, 9);
    // SAFETY: valid pointers.
    unsafe {
        assert_eq!(
            cuGraphExecUpdate(exec, larger, &raw mut error_node, &raw mut result),
            UPDATE_FAILURE
        );
        assert_eq!(
            (error_node, result),
            (nodes(larger)[1], 2),
            "another topology"
        );
        run(exec);
        assert_eq!(read(at), 2, "it is as it was");
        assert_eq!(
            cuGraphExecUpdate(exec, new, &raw mut error_node, &raw mut result),
            0
        );
        assert_eq!((error_node, result), (0, 0));
        run(exec);
        assert_eq!(read(at), 10);
        // Its nodes are still those of the graph that it was made of.
        let params = Step::new(at, 1, 7).params(world.step);
        assert_eq!(
            cuGraphExecKernelNodeSetParams_v2(exec, nodes(new)[0], &raw const params),
            INVALID_VALUE
        );
        let mut step = Step::new(at, 1, 7);
        let params = step.params(world.step);
        assert_eq!(
            cuGraphExecKernelNodeSetParams_v2(exec, nodes(old)[0], &raw const params),
            0
        );
    }
    run(exec);
    assert_eq!(read(at), 17);
}

#[test]
fn a_graph_in_an_executable_graph_is_exchanged() {
    let world = World::new();
    let at = alloc(1);
    let child = |factor, more: bool| {
        let child = graph();
        let first = add(child, &[], world.step, &mut Step::new(at, factor, 0));
        if more {
            add(child, &[first], world.step, &mut Step::new(at, 1, 1));
        }
        child
    };
    let (parent, mut node) = (graph(), 0);
    // SAFETY: valid pointers throughout.
    unsafe {
        let code = cuGraphAddChildGraphNode(&raw mut node, parent, null(), 0, child(2, false));
        assert_eq!(code, 0);
        let exec = instantiate(parent);
        assert_eq!(
            cuGraphExecChildGraphNodeSetParams(exec, node, child(1, true)),
            UPDATE_FAILURE
        );
        run(exec);
        assert_eq!(read(at), 2, "it is as it was");
        assert_eq!(
            cuGraphExecChildGraphNodeSetParams(exec, node, child(5, false)),
            0
        );
        run(exec);
        assert_eq!(read(at), 10);
        assert_eq!(
            cuGraphExecChildGraphNodeSetParams(exec, 12345, child(5, false)),
            INVALID_VALUE
        );
    }
}

#[test]
fn a_program_of_cuda_11_builds_graphs() {
    let world = World::new();
    let (at, graph, mut step) = (alloc(1), graph(), Step::new(alloc(0), 3, 2));
    step.values.0 = at;
    let params = step.params(world.step).first;
    let (mut node, mut exec, mut error_node) = (0, 0, 9);
    let mut log = [7; 4];
    // SAFETY: valid pointers throughout.
    unsafe {
        let code = cuGraphAddKernelNode(&raw mut node, graph, null(), 0, &raw const params);
        assert_eq!(code, 0);
        let mut told = Step::new(0, 0, 0).params(0).first;
        assert_eq!(cuGraphKernelNodeGetParams(node, &raw mut told), 0);
        assert_eq!((told.function, told.block), (world.step, [1; 3]));
        let code = cuGraphInstantiate_v2(
            &raw mut exec,
            graph,
            &raw mut error_node,
            log.as_mut_ptr(),
            4,
        );
        assert_eq!((code, error_node, log[0]), (0, 0, 0));
        run(exec);
        assert_eq!(read(at), 5);
        step.values.1 = 10;
        let params = step.params(world.step).first;
        assert_eq!(cuGraphKernelNodeSetParams(node, &raw const params), 0);
        assert_eq!(
            cuGraphExecKernelNodeSetParams(exec, node, &raw const params),
            0
        );
        run(exec);
        assert_eq!(read(at), 52);
    }
}

#[test]
fn a_trap_ends_the_graph_and_stays() {
    let world = World::new();
    let (at, graph) = (alloc(1), graph());
    let first = add(graph, &[], world.step, &mut Step::new(at, 2, 0));
    let stop = add(graph, &[first], world.stops, &mut Step::new(0, 0, 0));
    add(graph, &[stop], world.step, &mut Step::new(at, 2, 0));
    let exec = instantiate(graph);
    // SAFETY: no pointers.
    unsafe {
        assert_eq!(cuGraphLaunch(exec, 0), 0);
        assert_eq!(cuStreamSynchronize(0), 719);
    }
}

#[test]
fn streams_fork_and_join_in_a_capture() {
    let world = World::new();
    let (at, other) = (alloc(1), alloc(1));
    let (main, side, fork, join) = (stream(), stream(), event(), event());
    let calls = AtomicU32::new(0);
    let data = (&raw const calls).cast_mut().cast();
    // SAFETY: valid pointers throughout.
    let graph = unsafe {
        assert_eq!(begin(main, 0), 0);
        assert_eq!(launch(world.step, main, &mut Step::new(at, 3, 0)), 0);
        assert_eq!(
            (cuEventRecord(fork, main), cuStreamWaitEvent(side, fork, 0)),
            (0, 0)
        );
        assert_eq!(
            (status(main), status(side), status(stream())),
            ((0, 1), (0, 1), (0, 0))
        );
        assert_eq!(launch(world.step, side, &mut Step::new(other, 1, 4)), 0);
        assert_eq!(cuLaunchHostFunc(side, Some(count), data), 0);
        assert_eq!(launch(world.step, main, &mut Step::new(at, 1, 1)), 0);
        assert_eq!(
            (cuEventRecord(join, side), cuStreamWaitEvent(main, join, 0)),
            (0, 0)
        );
        assert_eq!(cuMemcpyDtoDAsync_v2(at, other, 4, main), 0);
        let (mut state, mut id, mut graph, mut behind, mut count) = (0, 0, 0, null(), 0);
        assert_eq!(
            cuStreamGetCaptureInfo_v2(
                main,
                &raw mut state,
                &raw mut id,
                &raw mut graph,
                &raw mut behind,
                &raw mut count
            ),
            0
        );
        assert_eq!(
            (state, count, *behind),
            (1, 1, *nodes(graph).last().expect("a node"))
        );
        assert_eq!(end(main), (0, graph));
        graph
    };
    assert_eq!((status(main), status(side)), ((0, 0), (0, 0)));
    assert_eq!(
        (read(at), read(other), calls.load(Ordering::Relaxed)),
        (1, 1, 0),
        "nothing ran"
    );
    let kernels = nodes(graph);
    // SAFETY: valid pointers.
    unsafe {
        assert_eq!(
            all(|to, n| cuGraphNodeGetDependencies(kernels[1], to, n)),
            [kernels[0]]
        );
        assert_eq!(
            all(|to, n| cuGraphNodeGetDependencies(kernels[4], to, n)),
            [kernels[3], kernels[2]]
        );
    }
    let exec = instantiate(graph);
    run(exec);
    run(exec);
    assert_eq!(
        (read(at), read(other), calls.load(Ordering::Relaxed)),
        (9, 9, 2)
    );
}

#[test]
fn what_a_capture_cannot_hold_spoils_it() {
    let world = World::new();
    let (at, main) = (alloc(1), stream());
    let exec = instantiate(graph());
    let mut address = 0;
    // SAFETY: valid pointers throughout.
    unsafe {
        type Call<'a> = (&'a str, Box<dyn Fn() -> u32 + 'a>);
        let calls: Vec<Call> = vec![
            (
                "a wait for the stream",
                Box::new(|| cuStreamSynchronize(main)),
            ),
            ("a look at the stream", Box::new(|| cuStreamQuery(main))),
            (
                "a callback",
                Box::new(|| cuStreamAddCallback(main, Some(callback), null_mut(), 0)),
            ),
            ("memory in order", Box::new(|| cuMemFreeAsync(at, main))),
            ("memory", Box::new(|| cuMemFree_v2(at))),
            ("a copy that waits", Box::new(|| cuMemsetD8_v2(at, 0, 4))),
            ("a wait for all", Box::new(|| cuCtxSynchronize())),
            ("a graph", Box::new(|| cuGraphLaunch(exec, main))),
        ];
        for (name, call) in &calls {
            assert_eq!(begin(main, 0), 0);
            assert_eq!(call(), UNSUPPORTED, "{name}");
            assert_eq!(status(main), (0, 2), "{name}");
            assert_eq!(
                launch(world.step, main, &mut Step::new(at, 1, 1)),
                INVALIDATED,
                "{name}"
            );
            assert_eq!(end(main), (INVALIDATED, 0), "{name}");
            assert_eq!(status(main), (0, 0), "{name}");
        }
        // A thread that says that it knows what it does.
        let mut mode = 2;
        assert_eq!(
            (cuThreadExchangeStreamCaptureMode(&raw mut mode), mode),
            (0, 0)
        );
        assert_eq!(begin(main, 0), 0);
        assert_eq!(cuMemAlloc_v2(&raw mut address, 4), 0);
        assert_eq!(end(main).0, 0);
        // But a captured stream is in the context that is waited for.
        assert_eq!((begin(main, 0), cuCtxSynchronize()), (0, UNSUPPORTED));
        assert_eq!(end(main), (INVALIDATED, 0));
        assert_eq!(
            (cuThreadExchangeStreamCaptureMode(&raw mut mode), mode),
            (0, 2)
        );
        // A capture that forbids nothing.
        assert_eq!(begin(main, 2), 0);
        assert_eq!(cuMemAlloc_v2(&raw mut address, 4), 0);
        assert_eq!(end(main).0, 0);
        assert_eq!(end(main), (ILLEGAL_STATE, 0));
        assert_eq!(begin(0, 0), UNSUPPORTED, "the legacy stream");
        // A stream takes its capture along.
        assert_eq!((begin(main, 0), cuStreamDestroy_v2(main)), (0, 0));
        assert_eq!(cuMemAlloc_v2(&raw mut address, 4), 0);
    }
}

extern "C" fn callback(_: Handle, _: u32, _: *mut c_void) {}

#[test]
fn captures_keep_to_themselves() {
    let world = World::new();
    let (at, main, side, mark) = (alloc(1), stream(), stream(), event());
    let step = |to| launch(world.step, to, &mut Step::new(at, 1, 1));
    // SAFETY: valid pointers throughout.
    unsafe {
        // A stream that was forked and not joined.
        assert_eq!(begin(main, 0), 0);
        assert_eq!(
            (
                cuEventRecord(mark, main),
                cuStreamWaitEvent(side, mark, 0),
                step(side)
            ),
            (0, 0, 0)
        );
        assert_eq!(end(side), (UNMATCHED, 0));
        assert_eq!(end(main), (INVALIDATED, 0));
        assert_eq!(begin(main, 0), 0);
        assert_eq!(
            (
                cuEventRecord(mark, main),
                cuStreamWaitEvent(side, mark, 0),
                step(side)
            ),
            (0, 0, 0)
        );
        assert_eq!(end(main), (UNJOINED, 0));
        // The event still stands for a place in a graph.
        assert_eq!(
            (cuEventQuery(mark), cuStreamWaitEvent(side, mark, 0)),
            (CAPTURED_EVENT, CAPTURED_EVENT)
        );
        assert_eq!((cuEventRecord(mark, side), cuEventQuery(mark)), (0, 0));
        // An event from outside.
        assert_eq!(begin(main, 0), 0);
        assert_eq!(cuStreamWaitEvent(main, mark, 0), ISOLATION);
        assert_eq!(end(main), (INVALIDATED, 0));
        // Two captures.
        assert_eq!(
            (begin(main, 0), begin(side, 0), begin(side, 0)),
            (0, 0, ILLEGAL_STATE)
        );
        assert_eq!(
            (cuEventRecord(mark, main), cuStreamWaitEvent(side, mark, 0)),
            (0, MERGE)
        );
        assert_eq!((end(main), end(side)), ((INVALIDATED, 0), (INVALIDATED, 0)));
        // Another thread.
        assert_eq!(begin(main, 0), 0);
        let (context, mut mode) = (world.context, 1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(cuCtxSetCurrent(context), 0);
                assert_eq!(end(main), (WRONG_THREAD, 0));
                assert_eq!(cuThreadExchangeStreamCaptureMode(&raw mut mode), 0);
                assert_eq!(cuEventQuery(event()), 0, "its own captures only");
            });
        });
        assert_eq!(end(main).0, 0);
        // A stream that the legacy stream waits for.
        let mut blocking = 0;
        assert_eq!(cuStreamCreate(&raw mut blocking, 0), 0);
        assert_eq!(begin(blocking, 2), 0);
        assert_eq!(status(0).0, IMPLICIT);
        assert_eq!(status(blocking), (0, 1));
        assert_eq!(step(0), IMPLICIT);
        assert_eq!(end(blocking), (INVALIDATED, 0));
    }
}

#[test]
fn a_capture_goes_into_a_graph_of_the_program() {
    let world = World::new();
    let (at, main, graph) = (alloc(1), stream(), graph());
    let first = add(graph, &[], world.step, &mut Step::new(at, 2, 0));
    // SAFETY: valid pointers throughout.
    unsafe {
        assert_eq!(
            cuStreamBeginCaptureToGraph(main, graph, &first, null(), 1, 0),
            0
        );
        assert_eq!(launch(world.step, main, &mut Step::new(at, 1, 3)), 0);
        let second = nodes(graph)[1];
        assert_eq!(
            cuStreamUpdateCaptureDependencies(main, [first].as_ptr().cast_mut(), 1, 1),
            0
        );
        assert_eq!(launch(world.step, main, &mut Step::new(at, 10, 0)), 0);
        assert_eq!(end(main), (0, graph));
        assert_eq!(
            all(|to, n| cuGraphNodeGetDependencies(second, to, n)),
            [first]
        );
        assert_eq!(
            all(|to, n| cuGraphNodeGetDependencies(nodes(graph)[2], to, n)),
            [first]
        );
        run(instantiate(graph));
        assert_eq!(read(at), (2 + 3) * 10);
    }
}

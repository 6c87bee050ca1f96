//! The hooks of the functions that put kernels into nodes of graphs, change them and read them.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::Ordering;

use warpbpf_driver::sys::{
    self, CUcontext, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUkernel, CUresult,
    GraphNodeParams, KernelNodeParams, KernelNodeParams2, NODE_CONDITIONAL, NODE_GRAPH,
    NODE_KERNEL,
};

use crate::device::graphs::records::Placed;
use crate::device::graphs::state::Variant;
use crate::hooks::choice::Candidate;
use crate::hooks::graphs::execs;
use crate::hooks::launch::try_variant;
use crate::hooks::launch_notes::tell;
use crate::kernels::entry::{Place, Runs};
use crate::kernels::fallback::FallbackReason;
use crate::kernels::shape::{Shape, count};
use crate::runtime::agent::Agent;
use crate::sys::guard::Outcome;
use crate::sys::original;

/// The launch record for a variant that goes into a node.
type RecordOf<'r> = &'r dyn Fn(&Place, &KernelNodeParams) -> Option<u64>;

/// The nodes of graphs do not run; their records are replaced when the graph is instantiated.
fn for_later(place: &Place, node: &KernelNodeParams) -> Option<u64> {
    let variant = place.variant.as_deref()?;
    variant.record_to_replace(node.grid, node.block)
}

/// Has `set` use the variant of the kernel that the application gave, or what it gave: `set` is
/// called with the parameters to use instead, or with none. `node` is what programs are told of it;
/// 0 for nodes that do not run.
///
/// # Safety
/// The parameters are what CUDA asks for.
unsafe fn set_variant(
    agent: &'static Agent,
    outcome: &Outcome,
    given: &KernelNodeParams2,
    body: bool,
    (record, node): (RecordOf<'_>, u64),
    set: &dyn Fn(Option<&KernelNodeParams>) -> CUresult,
) -> (CUresult, Placed) {
    let first = &given.first;
    let (named, context) = if first.func.is_null() && !given.kern.is_null() {
        let ctx = (!given.ctx.is_null()).then_some(given.ctx as usize);
        (given.kern, ctx)
    } else {
        (first.func, None)
    };
    let Some(entry) = agent.table.get(named as usize) else {
        let code = outcome.keep(set(None));
        let placed = Placed {
            kernel: None,
            launch: 0,
            given: named as usize,
        };
        return (code, placed);
    };
    let number = entry.made.fetch_add(1, Ordering::Relaxed) + 1;
    // The node keeps the programs that are in force now, until its kernel is set anew.
    let flight = agent.generations.enter();
    let context = context.or_else(|| agent.driver.current().map(|c| c.0 as usize));
    let shape = Shape {
        grid: first.grid,
        block: first.block,
        shared: first.shared_mem_bytes,
        // An attribute of the node may still say so.
        cooperative: true,
        overlaps: false,
        in_graph: true,
    };
    let run = |func, kernel_params, extra| {
        set(Some(&KernelNodeParams {
            func,
            kernel_params,
            extra,
            ..*first
        }))
    };
    let record = |place: &Place| record(place, first);
    let candidate = Candidate {
        number: None,
        blocks: count(first.grid),
        stream: None,
        now: true,
    };
    let tried = if entry.is_too_dear(flight.generation.number) {
        Err(FallbackReason::Skipped)
    } else {
        let (params, extra) = (first.kernel_params, first.extra);
        match agent.chosen(flight.generation, entry, candidate) {
            Some(0) => Err(FallbackReason::Skipped),
            _ if agent.graphs.is_blind() => Err(FallbackReason::None),
            // SAFETY: the caller's promise.
            chosen => unsafe {
                try_variant(
                    agent,
                    entry,
                    context,
                    (flight.generation, number, node),
                    (candidate, chosen),
                    &shape,
                    &record,
                    params,
                    extra,
                    &run,
                )
            },
        }
    };
    let reason = match tried {
        Ok((place, chosen)) => {
            agent.graphs.hold(place);
            let hidden = place.variant.as_deref().and_then(|v| v.hidden);
            let placed = Placed {
                kernel: Some((entry, Runs::Variant(place, chosen))),
                launch: hidden.map_or(0, |_| number),
                given: named as usize,
            };
            return (outcome.keep(sys::SUCCESS), placed);
        }
        Err(reason) => reason,
    };
    let code = outcome.keep(set(None));
    let runs = reason.runs(agent, entry, flight.generation, candidate);
    if code == sys::SUCCESS {
        if body {
            // What runs there is no launch, and would be heard of nowhere.
            runs.count();
        }
        if let Runs::Skipped(_) = runs {
            agent.tell_of_choice_in_graph(entry);
        }
        tell(agent, entry, reason);
    }
    let placed = Placed {
        kernel: Some((entry, runs)),
        launch: 0,
        given: named as usize,
    };
    (code, placed)
}

/// The parameters since CUDA 12 that older ones mean.
fn newer(first: KernelNodeParams) -> KernelNodeParams2 {
    KernelNodeParams2 {
        first,
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    }
}

/// Both versions of a struct of parameters.
trait Params: Copy {
    fn read(&self) -> KernelNodeParams2;
    fn with(first: &KernelNodeParams) -> Self;
    fn tell(&mut self, func: CUfunction, kern: CUkernel, ctx: CUcontext);
}

impl Params for KernelNodeParams {
    fn read(&self) -> KernelNodeParams2 {
        newer(*self)
    }

    fn with(first: &KernelNodeParams) -> Self {
        *first
    }

    fn tell(&mut self, func: CUfunction, _kern: CUkernel, _ctx: CUcontext) {
        self.func = func;
    }
}

impl Params for KernelNodeParams2 {
    fn read(&self) -> KernelNodeParams2 {
        *self
    }

    fn with(first: &KernelNodeParams) -> Self {
        newer(*first)
    }

    fn tell(&mut self, func: CUfunction, kern: CUkernel, ctx: CUcontext) {
        (self.first.func, self.kern, self.ctx) = (func, kern, ctx);
    }
}

/// # Safety
/// `params` is null or valid, and so is what it points to; `node` is written by a `set` that
/// succeeds.
unsafe fn add_kernel<P: Params>(
    agent: &'static Agent,
    outcome: &Outcome,
    (node, graph): (*mut CUgraphNode, CUgraph),
    params: *const P,
    add: &dyn Fn(*const P) -> CUresult,
) -> CUresult {
    // SAFETY: the caller's promise.
    let Some(given) = (unsafe { params.as_ref() }).map(P::read) else {
        return outcome.keep(add(params));
    };
    let body = agent.graphs.bodies.contain(graph);
    let set = |changed: Option<&KernelNodeParams>| match changed.map(P::with) {
        Some(changed) => add(&changed),
        None => add(params),
    };
    // SAFETY: the caller's promise.
    let (code, _) = unsafe { set_variant(agent, outcome, &given, body, (&for_later, 0), &set) };
    if code == sys::SUCCESS && !node.is_null() {
        // SAFETY: the driver has written it.
        agent.graphs.bodies.put(unsafe { *node }, graph);
    }
    code
}

/// # Safety
/// As [`add_kernel`].
unsafe fn set_kernel<P: Params>(
    agent: &'static Agent,
    outcome: &Outcome,
    node: CUgraphNode,
    params: *const P,
    set: &dyn Fn(*const P) -> CUresult,
) -> CUresult {
    // SAFETY: the caller's promise.
    let Some(given) = (unsafe { params.as_ref() }).map(P::read) else {
        return outcome.keep(set(params));
    };
    let body = agent.graphs.bodies.have(node);
    let set = |changed: Option<&KernelNodeParams>| match changed.map(P::with) {
        Some(changed) => set(&changed),
        None => set(params),
    };
    // SAFETY: the caller's promise.
    unsafe { set_variant(agent, outcome, &given, body, (&for_later, 0), &set) }.0
}

/// # Safety
/// As [`add_kernel`].
unsafe fn set_kernel_in_exec<P: Params>(
    agent: &'static Agent,
    outcome: &Outcome,
    (exec, node): (CUgraphExec, CUgraphNode),
    params: *const P,
    set: &dyn Fn(*const P) -> CUresult,
) -> CUresult {
    // SAFETY: the caller's promise.
    let Some(given) = (unsafe { params.as_ref() }).map(P::read) else {
        return outcome.keep(set(params));
    };
    let set = |changed: Option<&KernelNodeParams>| match changed.map(P::with) {
        Some(changed) => set(&changed),
        None => set(params),
    };
    execs::change_node(agent, exec, node, |record, number, body| {
        // SAFETY: the caller's promise.
        unsafe { set_variant(agent, outcome, &given, body, (record, number), &set) }
    })
}

/// Tells the application of the kernel that it gave.
///
/// # Safety
/// If `code` is success, `params` is null or holds what the driver told.
unsafe fn tell_original<P: Params>(agent: &'static Agent, code: CUresult, params: *mut P) {
    if code != sys::SUCCESS {
        return;
    }
    // SAFETY: the caller's promise.
    let Some(params) = (unsafe { params.as_mut() }) else {
        return;
    };
    let told = params.read();
    let Some(Variant { entry, place }) = agent.graphs.variants.get(told.first.func as usize) else {
        return;
    };
    let Some(variant) = place.variant.as_deref() else {
        return;
    };
    // An H200's driver tells the function, the library's kernel and the context, however the
    // application named it, and the runtime finds its own kernels by the second.
    let kernel = entry
        .library_kernel()
        .map_or(ptr::null_mut(), |kernel| kernel as CUkernel);
    params.tell(variant.original.0, kernel, told.ctx);
}

macro_rules! kernel_nodes {
    ($($params:ty: $add:ident = $add_original:ident, $set:ident = $set_original:ident, $get:ident = $get_original:ident,
        $set_in_exec:ident = $exec_original:ident;)*) => { $(
        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $add(
            agent: &'static Agent, outcome: &Outcome, node: *mut CUgraphNode, graph: CUgraph, behind: *const CUgraphNode,
            count: usize, params: *const $params,
        ) -> CUresult {
            // SAFETY: the application's own arguments, with another function of the same
            // parameters.
            let add = |params| unsafe { original::$add_original(node, graph, behind, count, params) };
            // SAFETY: as above.
            unsafe { add_kernel(agent, outcome, (node, graph), params, &add) }
        }

        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $set(
            agent: &'static Agent, outcome: &Outcome, node: CUgraphNode, params: *const $params,
        ) -> CUresult {
            // SAFETY: as above.
            let set = |params| unsafe { original::$set_original(node, params) };
            // SAFETY: as above.
            unsafe { set_kernel(agent, outcome, node, params, &set) }
        }

        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $get(
            agent: &'static Agent, outcome: &Outcome, node: CUgraphNode, params: *mut $params,
        ) -> CUresult {
            // SAFETY: the application's own arguments.
            let code = outcome.keep(unsafe { original::$get_original(node, params) });
            // SAFETY: the driver has written it.
            unsafe { tell_original(agent, code, params) };
            code
        }

        /// # Safety
        /// As the driver's function.
        pub(crate) unsafe fn $set_in_exec(
            agent: &'static Agent, outcome: &Outcome, exec: CUgraphExec, node: CUgraphNode, params: *const $params,
        ) -> CUresult {
            // SAFETY: as above.
            let set = |params| unsafe { original::$exec_original(exec, node, params) };
            // SAFETY: as above.
            unsafe { set_kernel_in_exec(agent, outcome, (exec, node), params, &set) }
        }
    )* };
}

kernel_nodes! {
    KernelNodeParams: add_kernel_node = graph_add_kernel, set_kernel_node = graph_set_kernel,
        get_kernel_node = graph_get_kernel, set_kernel_node_in_exec = exec_set_kernel;
    KernelNodeParams2: add_kernel_node_v2 = graph_add_kernel_v2, set_kernel_node_v2 = graph_set_kernel_v2,
        get_kernel_node_v2 = graph_get_kernel_v2, set_kernel_node_in_exec_v2 = exec_set_kernel_v2;
}

/// The parameters of a kernel in those of any node.
///
/// # Safety
/// `params` is null or valid.
unsafe fn kernel_in(params: *const GraphNodeParams) -> *const KernelNodeParams2 {
    // SAFETY: the caller's promise.
    match unsafe { params.as_ref() } {
        Some(given) if given.kind == NODE_KERNEL => given.value.as_ptr().cast(),
        _ => ptr::null(),
    }
}

/// Any node's parameters with these of a kernel.
///
/// # Safety
/// `params` is valid, and `kernel` is in it or valid by itself.
unsafe fn with_kernel(
    params: *mut GraphNodeParams,
    kernel: *const KernelNodeParams2,
    run: impl FnOnce(*mut GraphNodeParams) -> CUresult,
) -> CUresult {
    // SAFETY: the caller's promise.
    let (mut changed, own) = unsafe { (*params, kernel_in(params)) };
    if own == kernel {
        return run(params);
    }
    // SAFETY: a kernel's parameters fit into the union.
    unsafe {
        changed
            .value
            .as_mut_ptr()
            .cast::<KernelNodeParams2>()
            .write(*kernel)
    };
    run(&mut changed)
}

/// What a node that is no kernel's changes for us.
///
/// # Safety
/// If `code` is success, `node` and `params` are valid.
unsafe fn added(
    agent: &'static Agent,
    code: CUresult,
    node: *mut CUgraphNode,
    graph: CUgraph,
    params: *const GraphNodeParams,
) {
    if code != sys::SUCCESS || node.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    let (node, Some(params)) = (unsafe { (*node, params.as_ref()) }) else {
        return;
    };
    if params.kind != NODE_CONDITIONAL {
        return;
    }
    // `CUDA_CONDITIONAL_NODE_PARAMS`: handle, type and number of bodies, the bodies.
    let count = (params.value[1] >> 32) as usize;
    let bodies = params.value[2] as *const usize;
    if !bodies.is_null() {
        // SAFETY: the driver has made as many bodies.
        let bodies = unsafe { std::slice::from_raw_parts(bodies, count) };
        agent.graphs.bodies.add(node, graph, bodies.to_vec());
    }
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn add_node(
    agent: &'static Agent,
    outcome: &Outcome,
    node: *mut CUgraphNode,
    graph: CUgraph,
    behind: *const CUgraphNode,
    count: usize,
    params: *mut GraphNodeParams,
) -> CUresult {
    // SAFETY: the application's own arguments, with another function of the same parameters.
    let add = |params| unsafe { original::graph_add_node(node, graph, behind, count, params) };
    // SAFETY: as above.
    unsafe { add_any(agent, outcome, (node, graph), params, &add) }
}

/// # Safety
/// As the driver's function.
#[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
pub(crate) unsafe fn add_node_v2(
    agent: &'static Agent,
    outcome: &Outcome,
    node: *mut CUgraphNode,
    graph: CUgraph,
    behind: *const CUgraphNode,
    data: *const c_void,
    count: usize,
    params: *mut GraphNodeParams,
) -> CUresult {
    let add = |params| {
        // SAFETY: the application's own arguments, with another function of the same parameters.
        unsafe { original::graph_add_node_v2(node, graph, behind, data, count, params) }
    };
    // SAFETY: as above.
    unsafe { add_any(agent, outcome, (node, graph), params, &add) }
}

/// # Safety
/// As for [`add_kernel`].
unsafe fn add_any(
    agent: &'static Agent,
    outcome: &Outcome,
    (node, graph): (*mut CUgraphNode, CUgraph),
    params: *mut GraphNodeParams,
    add: &dyn Fn(*mut GraphNodeParams) -> CUresult,
) -> CUresult {
    // SAFETY: the caller's promise.
    let kernel = unsafe { kernel_in(params) };
    if kernel.is_null() {
        let code = outcome.keep(add(params));
        // SAFETY: as above.
        unsafe { added(agent, code, node, graph, params) };
        return code;
    }
    // SAFETY: as above.
    let add = |kernel: *const KernelNodeParams2| unsafe { with_kernel(params, kernel, add) };
    // SAFETY: as above.
    unsafe { add_kernel(agent, outcome, (node, graph), kernel, &add) }
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn set_node(
    agent: &'static Agent,
    outcome: &Outcome,
    node: CUgraphNode,
    params: *mut GraphNodeParams,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let set = |params| unsafe { original::node_set(node, params) };
    // SAFETY: as above.
    let kernel = unsafe { kernel_in(params) };
    if kernel.is_null() {
        return outcome.keep(set(params));
    }
    // SAFETY: as above.
    let set = |kernel: *const KernelNodeParams2| unsafe { with_kernel(params, kernel, set) };
    // SAFETY: as above.
    unsafe { set_kernel(agent, outcome, node, kernel, &set) }
}

/// # Safety
/// As the driver's function.
pub(crate) unsafe fn set_node_in_exec(
    agent: &'static Agent,
    outcome: &Outcome,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *mut GraphNodeParams,
) -> CUresult {
    // SAFETY: the application's own arguments.
    let set = |params| unsafe { original::exec_set_node(exec, node, params) };
    // SAFETY: as above.
    let kernel = unsafe { kernel_in(params) };
    if !kernel.is_null() {
        // SAFETY: as above.
        let set = |kernel: *const KernelNodeParams2| unsafe { with_kernel(params, kernel, set) };
        // SAFETY: as above.
        return unsafe { set_kernel_in_exec(agent, outcome, (exec, node), kernel, &set) };
    }
    // SAFETY: null or valid.
    match unsafe { params.as_ref() } {
        Some(given) if given.kind == NODE_GRAPH => {
            let child = given.value[0] as CUgraph;
            execs::change_child(agent, exec, node, child, || outcome.keep(set(params)))
        }
        _ => outcome.keep(set(params)),
    }
}

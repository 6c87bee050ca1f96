//! Nodes by kind: what a program gives for one, and what it is told again.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::driver::graphs::{add, add_behind, behind, graph, home};
use crate::driver::launch::{Request, prepare};
use crate::driver::module::kernel_of;
use crate::driver::{graph_exec, streams};
use crate::error::{CuError, CuResult};
use crate::objects::condition::{ASSIGN_DEFAULT, Choice, Condition};
use crate::objects::fill::{Fill, FillParams};
use crate::objects::handle::Handle;
use crate::objects::kernel_call::{AttributeValue, HostCall, KernelCall};
use crate::objects::transfer::{Copy3d, Transfer};
use crate::objects::work::{Conditional, EdgeData, Graph, Operation};
use crate::state::{current, put, soft};

/// `CUDA_KERNEL_NODE_PARAMS` of CUDA 10 to 11.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct KernelParams {
    /// A function, or a kernel in its place.
    pub function: Handle,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads per block.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared: u32,
    /// A pointer to each parameter.
    pub params: *mut *mut c_void,
    /// Parameters in one buffer.
    pub extra: *mut *mut c_void,
}

/// `CUDA_KERNEL_NODE_PARAMS` since CUDA 12.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct KernelParams2 {
    /// As before.
    pub first: KernelParams,
    /// A kernel, if there is no function.
    pub kernel: Handle,
    /// Its context; the current one if there is none.
    pub context: Handle,
}

/// `CUDA_HOST_NODE_PARAMS`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct HostParams {
    /// What is called.
    pub function: Option<unsafe extern "C" fn(*mut c_void)>,
    /// With this.
    pub data: *mut c_void,
}

/// `CUgraphNodeParams`
#[repr(C)]
pub struct NodeParams {
    kind: c_int,
    reserved: [c_int; 3],
    /// A union by kind.
    value: [u64; 29],
    reserved2: u64,
}

/// `CUDA_MEMCPY_NODE_PARAMS`
#[repr(C)]
struct CopyParams {
    flags: c_int,
    reserved: c_int,
    context: Handle,
    copy: Copy3d,
}

const _: () = assert!(size_of::<NodeParams>() == 256 && size_of::<CopyParams>() <= 29 * 8);

impl NodeParams {
    pub(crate) fn other(kind: c_int, value: [u64; 29]) -> NodeParams {
        NodeParams {
            kind,
            reserved: [0; 3],
            value,
            reserved2: 0,
        }
    }

    /// # Safety
    /// `T` is the member of the union that `kind` says.
    unsafe fn with<T>(kind: c_int, value: T) -> NodeParams {
        let mut params = NodeParams::other(kind, [0; 29]);
        // SAFETY: members of the union are no larger than it.
        unsafe { params.value.as_mut_ptr().cast::<T>().write(value) };
        params
    }

    pub(crate) fn kernel(params: KernelParams2) -> NodeParams {
        // SAFETY: the kind's member.
        unsafe { NodeParams::with(kind::KERNEL, params) }
    }

    pub(crate) fn copy(copy: Copy3d, context: Handle) -> NodeParams {
        let params = CopyParams {
            flags: 0,
            reserved: 0,
            context,
            copy,
        };
        // SAFETY: the kind's member.
        unsafe { NodeParams::with(kind::COPY, params) }
    }

    /// Of a graph, the first is its handle; of a conditional node, the third is the list of its
    /// graphs.
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.value[at]
    }
}

/// `CU_GRAPH_NODE_TYPE_…`
mod kind {
    use std::ffi::c_int;
    pub const KERNEL: c_int = 0;
    pub const COPY: c_int = 1;
    pub const FILL: c_int = 2;
    pub const HOST: c_int = 3;
    pub const GRAPH: c_int = 4;
    pub const EMPTY: c_int = 5;
    pub const WAIT: c_int = 6;
    pub const RECORD: c_int = 7;
    pub const CONDITIONAL: c_int = 13;
    pub const LAST: c_int = 13;
}

/// # Safety
/// `params` is null or valid, and so is what it points to.
unsafe fn kernel(params: *const KernelParams2) -> Result<Operation, CuError> {
    let soft = soft()?;
    current()?;
    // SAFETY: the caller's promise.
    let given = unsafe { params.as_ref() }.ok_or(CuError::INVALID_VALUE)?;
    let first = &given.first;
    let named = if first.function == 0 {
        // One context is current, and a kernel is a function of it.
        if given.context != 0 && given.context != current()?.handle {
            return Err(CuError::INVALID_VALUE);
        }
        given.kernel
    } else {
        first.function
    };
    if named == 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let request = Request {
        function: named,
        grid: first.grid,
        block: first.block,
        cluster: [1; 3],
        shared: first.shared,
        cooperative: false,
    };
    // SAFETY: the caller's promise.
    let call = unsafe { prepare(soft, &request, first.params, first.extra)? };
    Ok(Operation::Kernel(Arc::new(call)))
}

/// # Safety
/// As [`kernel`].
unsafe fn kernel_v1(params: *const KernelParams) -> Result<Operation, CuError> {
    // SAFETY: the caller's promise.
    let first = *unsafe { params.as_ref() }.ok_or(CuError::INVALID_VALUE)?;
    let params = KernelParams2 {
        first,
        kernel: 0,
        context: 0,
    };
    // SAFETY: a local; what it points to is the caller's.
    unsafe { kernel(&raw const params) }
}

/// # Safety
/// `copy` is null or valid.
unsafe fn copy(copy: *const Copy3d) -> Result<Operation, CuError> {
    // SAFETY: the caller's promise.
    let copy = unsafe { copy.as_ref() }.ok_or(CuError::INVALID_VALUE)?;
    if copy.is_empty() {
        return Err(CuError::INVALID_VALUE);
    }
    Ok(Operation::Copy(Transfer::of(soft()?, copy)?.into()))
}

/// # Safety
/// `params` is null or valid.
unsafe fn fill(params: *const FillParams) -> Result<Operation, CuError> {
    // SAFETY: the caller's promise.
    let params = *unsafe { params.as_ref() }.ok_or(CuError::INVALID_VALUE)?;
    let fill = Fill::of(soft()?, params)?;
    if fill.is_empty() {
        return Err(CuError::INVALID_VALUE);
    }
    Ok(Operation::Fill(fill))
}

/// # Safety
/// `params` is null or valid.
unsafe fn host(params: *const HostParams) -> Result<Operation, CuError> {
    // SAFETY: the caller's promise.
    let params = unsafe { params.as_ref() }.ok_or(CuError::INVALID_VALUE)?;
    let function = params.function.ok_or(CuError::INVALID_VALUE)?;
    let data = params.data as usize;
    Ok(Operation::Host(HostCall { function, data }))
}

fn inner(child: Handle) -> Result<Operation, CuError> {
    Ok(Operation::Graph(graph(child)?.copy(soft()?, true)?))
}

fn wait(event: Handle) -> Result<Operation, CuError> {
    Ok(Operation::Wait(streams::event(event)?))
}

fn record(event: Handle) -> Result<Operation, CuError> {
    Ok(Operation::Record(streams::event(event)?))
}

/// # Safety
/// `params` is null or valid, and so is what it points to.
unsafe fn any(params: *const NodeParams) -> Result<Operation, CuError> {
    // SAFETY: the caller's promise.
    let params = unsafe { params.as_ref() }.ok_or(CuError::INVALID_VALUE)?;
    let value = params.value.as_ptr();
    // SAFETY: the union holds what its kind says, and each kind fits.
    unsafe {
        match params.kind {
            kind::KERNEL => kernel(value.cast()),
            kind::COPY => copy(&raw const (*value.cast::<CopyParams>()).copy),
            kind::FILL => fill(value.cast()),
            kind::HOST => host(value.cast()),
            kind::GRAPH => inner(params.value[0] as Handle),
            kind::EMPTY => Ok(Operation::Empty),
            kind::WAIT => wait(params.value[0] as Handle),
            kind::RECORD => record(params.value[0] as Handle),
            other if (0..=kind::LAST).contains(&other) => Err(CuError::NOT_SUPPORTED),
            _ => Err(CuError::INVALID_VALUE),
        }
    }
}

/// `CUDA_CONDITIONAL_NODE_PARAMS`
#[repr(C)]
struct ConditionalParams {
    condition: u64,
    choice: c_int,
    bodies: u32,
    graphs: *const Handle,
    context: Handle,
}

/// A conditional node in a graph, with graphs of its own.
fn conditional(into: Handle, params: &ConditionalParams) -> Result<Operation, CuError> {
    let soft = soft()?;
    let choice = Choice::of(params.choice).ok_or(CuError::INVALID_VALUE)?;
    // More than a program lists; each takes memory.
    if !choice.takes(params.bodies) || params.bodies > 1 << 16 {
        return Err(CuError::INVALID_VALUE);
    }
    // A graph in a node may have nodes with the values of those around it.
    let own = graph(into)?.condition(params.condition);
    let around = || {
        soft.graphs
            .all()
            .iter()
            .find_map(|graph| graph.condition(params.condition))
    };
    let condition = own.or_else(around).ok_or(CuError::INVALID_VALUE)?;
    let bodies = (0..params.bodies).map(|_| Graph::new(soft, true)).collect();
    Ok(Operation::Conditional(Conditional::new(
        condition, choice, bodies,
    )))
}

pub(crate) unsafe fn create_condition(
    to: *mut u64,
    of: Handle,
    context: Handle,
    default: u32,
    flags: u32,
) -> CuResult {
    let soft = soft()?;
    let of = graph(of)?;
    let context = match context {
        0 => current()?,
        handle => crate::state::context(soft, handle)?,
    };
    if to.is_null() || flags & !ASSIGN_DEFAULT != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let condition = Condition::new(soft, context.device, default, flags)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, condition.address)? };
    of.add_condition(condition);
    Ok(())
}

pub(crate) unsafe fn add_any_v2(
    to: *mut Handle,
    into: Handle,
    nodes: *const Handle,
    data: *const EdgeData,
    count: usize,
    params: *mut NodeParams,
) -> CuResult {
    // SAFETY: the caller's pointers.
    unsafe {
        let behind = behind(nodes, data, count)?;
        if to.is_null() {
            return Err(CuError::INVALID_VALUE);
        }
        let what = match params.as_ref() {
            Some(params) if params.kind == kind::CONDITIONAL => {
                conditional(into, &*params.value.as_ptr().cast())?
            }
            _ => any(params)?,
        };
        add_behind(to, into, &behind, what)?;
        match operation(*to) {
            // The program is told the copy of its graph.
            Ok(Operation::Graph(inner)) => (*params).value[0] = inner.handle as u64,
            // The graphs are the node's, and so is their list.
            Ok(Operation::Conditional(node)) => {
                (*params).value[2] = node.handles.as_ptr() as u64;
            }
            _ => {}
        }
    }
    Ok(())
}

pub(crate) unsafe fn add_any(
    to: *mut Handle,
    into: Handle,
    nodes: *const Handle,
    count: usize,
    params: *mut NodeParams,
) -> CuResult {
    // SAFETY: the caller's pointers.
    unsafe { add_any_v2(to, into, nodes, std::ptr::null(), count, params) }
}

/// What a node does.
fn operation(node: Handle) -> Result<Operation, CuError> {
    home(node)?.with(node, |node| node.operation.clone())
}

/// Has a node do something else of its kind. Attributes of a kernel's node stay.
fn set(node: Handle, mut new: Operation) -> CuResult {
    home(node)?.with(node, |node| {
        if node.operation.kind() != new.kind() {
            return Err(CuError::INVALID_VALUE);
        }
        keep_attributes(&node.operation, &mut new);
        node.operation = new;
        Ok(())
    })?
}

/// Attributes are the node's, not its parameters'.
fn keep_attributes(old: &Operation, new: &mut Operation) {
    if let (Operation::Kernel(old), Operation::Kernel(new)) = (old, new) {
        let new = Arc::make_mut(new);
        new.cluster = old.cluster;
        new.cooperative = old.cooperative;
        new.attributes = old.attributes.clone();
    }
}

/// Has a node of an executable graph do something else of its kind, from the next launch on.
fn set_in_exec(exec: Handle, node: Handle, mut new: Operation) -> CuResult {
    graph_exec::change(exec, node, |step| {
        if step.operation.kind() != new.kind()
            || crate::work::graph::may_replace(&step.operation, &new).is_err()
        {
            return Err(CuError::INVALID_VALUE);
        }
        keep_attributes(&step.operation, &mut new);
        if let Operation::Graph(inner) = &new {
            let template = inner.template()?;
            let old = step.inner.first_mut().ok_or(CuError::INVALID_VALUE)?;
            old.compare(&template)
                .map_err(|_| CuError::GRAPH_EXEC_UPDATE_FAILURE)?;
            old.replace(template);
            inner.forget(soft()?);
            return Ok(());
        }
        step.operation = new;
        Ok(())
    })
}

pub(crate) unsafe fn set_any(node: Handle, params: *mut NodeParams) -> CuResult {
    // SAFETY: the caller's pointer.
    set(node, unsafe { any(params)? })
}

pub(crate) unsafe fn set_any_in_exec(
    exec: Handle,
    node: Handle,
    params: *mut NodeParams,
) -> CuResult {
    // SAFETY: the caller's pointer.
    set_in_exec(exec, node, unsafe { any(params)? })
}

pub(crate) unsafe fn add_empty(
    to: *mut Handle,
    into: Handle,
    nodes: *const Handle,
    count: usize,
) -> CuResult {
    // SAFETY: the caller's pointers.
    unsafe { add(to, into, nodes, count, Operation::Empty) }
}

macro_rules! nodes {
    ($($add:ident, $set:ident, $set_in_exec:ident: $make:ident($ty:ty);)*) => { $(
        pub(crate) unsafe fn $add(
            to: *mut Handle, into: Handle, nodes: *const Handle, count: usize, params: *const $ty,
        ) -> CuResult {
            // SAFETY: the caller's pointers.
            unsafe { add(to, into, nodes, count, $make(params)?) }
        }

        pub(crate) unsafe fn $set(node: Handle, params: *const $ty) -> CuResult {
            // SAFETY: the caller's pointer.
            set(node, unsafe { $make(params)? })
        }

        pub(crate) unsafe fn $set_in_exec(exec: Handle, node: Handle, params: *const $ty) -> CuResult {
            // SAFETY: the caller's pointer.
            set_in_exec(exec, node, unsafe { $make(params)? })
        }
    )* };
}

nodes! {
    add_kernel, set_kernel, set_kernel_in_exec: kernel(KernelParams2);
    add_kernel_v1, set_kernel_v1, set_kernel_in_exec_v1: kernel_v1(KernelParams);
    add_host, set_host, set_host_in_exec: host(HostParams);
}

macro_rules! nodes_in_context {
    ($($add:ident, $set:ident, $set_in_exec:ident: $make:ident($ty:ty);)*) => { $(
        pub(crate) unsafe fn $add(
            to: *mut Handle, into: Handle, nodes: *const Handle, count: usize, params: *const $ty, _context: Handle,
        ) -> CuResult {
            // SAFETY: the caller's pointers.
            unsafe { add(to, into, nodes, count, $make(params)?) }
        }

        pub(crate) unsafe fn $set(node: Handle, params: *const $ty) -> CuResult {
            // SAFETY: the caller's pointer.
            set(node, unsafe { $make(params)? })
        }

        pub(crate) unsafe fn $set_in_exec(
            exec: Handle, node: Handle, params: *const $ty, _context: Handle,
        ) -> CuResult {
            // SAFETY: the caller's pointer.
            set_in_exec(exec, node, unsafe { $make(params)? })
        }
    )* };
}

nodes_in_context! {
    add_copy, set_copy, set_copy_in_exec: copy(Copy3d);
    add_fill, set_fill, set_fill_in_exec: fill(FillParams);
}

macro_rules! nodes_of_handles {
    ($($add:ident, $set:ident, $set_in_exec:ident: $make:ident;)*) => { $(
        pub(crate) unsafe fn $add(
            to: *mut Handle, into: Handle, nodes: *const Handle, count: usize, of: Handle,
        ) -> CuResult {
            // SAFETY: the caller's pointers.
            unsafe { add(to, into, nodes, count, $make(of)?) }
        }

        pub(crate) unsafe fn $set(node: Handle, of: Handle) -> CuResult {
            set(node, $make(of)?)
        }

        pub(crate) unsafe fn $set_in_exec(exec: Handle, node: Handle, of: Handle) -> CuResult {
            set_in_exec(exec, node, $make(of)?)
        }
    )* };
}

nodes_of_handles! {
    add_wait, set_wait, set_wait_in_exec: wait;
    add_record, set_record, set_record_in_exec: record;
}

pub(crate) unsafe fn add_graph(
    to: *mut Handle,
    into: Handle,
    nodes: *const Handle,
    count: usize,
    child: Handle,
) -> CuResult {
    // SAFETY: the caller's pointers.
    unsafe { add(to, into, nodes, count, inner(child)?) }
}

pub(crate) unsafe fn set_graph_in_exec(exec: Handle, node: Handle, child: Handle) -> CuResult {
    set_in_exec(exec, node, inner(child)?)
}

fn call_of(node: Handle) -> Result<Arc<KernelCall>, CuError> {
    match operation(node)? {
        Operation::Kernel(call) => Ok(call),
        _ => Err(CuError::INVALID_VALUE),
    }
}

/// The function, the library's kernel that it is and its context, however the program named it: as
/// an H200's driver tells them. The pointers are valid until the node is destroyed or changed.
pub(crate) unsafe fn get_kernel(node: Handle, to: *mut KernelParams2) -> CuResult {
    let call = call_of(node)?;
    let function = &call.function;
    let kernel = kernel_of(soft()?, function);
    let params = KernelParams2 {
        first: KernelParams {
            function: function.handle,
            grid: call.grid,
            block: call.block,
            shared: call.shared,
            params: call.values.pointers.as_ptr().cast_mut().cast(),
            extra: std::ptr::null_mut(),
        },
        kernel: kernel.map_or(0, |kernel| kernel.handle),
        context: function.module.context,
    };
    // SAFETY: the caller's pointer.
    unsafe { put(to, params) }
}

pub(crate) unsafe fn get_kernel_v1(node: Handle, to: *mut KernelParams) -> CuResult {
    let mut params = std::mem::MaybeUninit::<KernelParams2>::uninit();
    // SAFETY: a local, which is written if it succeeds.
    let first = unsafe {
        get_kernel(node, params.as_mut_ptr())?;
        params.assume_init().first
    };
    // SAFETY: the caller's pointer.
    unsafe { put(to, first) }
}

pub(crate) unsafe fn get_copy(node: Handle, to: *mut Copy3d) -> CuResult {
    match operation(node)? {
        // SAFETY: the caller's pointer.
        Operation::Copy(copy) => unsafe { put(to, copy.description) },
        _ => Err(CuError::INVALID_VALUE),
    }
}

pub(crate) unsafe fn get_fill(node: Handle, to: *mut FillParams) -> CuResult {
    match operation(node)? {
        // SAFETY: the caller's pointer.
        Operation::Fill(fill) => unsafe { put(to, fill.params) },
        _ => Err(CuError::INVALID_VALUE),
    }
}

pub(crate) unsafe fn get_host(node: Handle, to: *mut HostParams) -> CuResult {
    match operation(node)? {
        Operation::Host(call) => {
            let params = HostParams {
                function: Some(call.function),
                data: call.data as *mut c_void,
            };
            // SAFETY: the caller's pointer.
            unsafe { put(to, params) }
        }
        _ => Err(CuError::INVALID_VALUE),
    }
}

pub(crate) unsafe fn get_graph(node: Handle, to: *mut Handle) -> CuResult {
    match operation(node)? {
        // SAFETY: the caller's pointer.
        Operation::Graph(inner) => unsafe { put(to, inner.handle) },
        _ => Err(CuError::INVALID_VALUE),
    }
}

pub(crate) unsafe fn get_wait(node: Handle, to: *mut Handle) -> CuResult {
    match operation(node)? {
        // SAFETY: the caller's pointer.
        Operation::Wait(event) => unsafe { put(to, event.handle) },
        _ => Err(CuError::INVALID_VALUE),
    }
}

pub(crate) unsafe fn get_record(node: Handle, to: *mut Handle) -> CuResult {
    match operation(node)? {
        // SAFETY: the caller's pointer.
        Operation::Record(event) => unsafe { put(to, event.handle) },
        _ => Err(CuError::INVALID_VALUE),
    }
}

/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`, `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`
const COOPERATIVE: u32 = 2;
const CLUSTER_DIMENSION: u32 = 4;

pub(crate) unsafe fn get_attribute(node: Handle, which: u32, to: *mut AttributeValue) -> CuResult {
    let call = call_of(node)?;
    let mut value = AttributeValue::default();
    match which {
        COOPERATIVE => value[0] = u64::from(call.cooperative),
        CLUSTER_DIMENSION => {
            let [x, y, z] = call.cluster.map(u64::from);
            value[0] = x | y << 32;
            value[1] = z;
        }
        other => value = call.attributes.get(&other).copied().unwrap_or_default(),
    }
    // SAFETY: the caller's pointer.
    unsafe { put(to, value) }
}

pub(crate) unsafe fn set_attribute(
    node: Handle,
    which: u32,
    value: *const AttributeValue,
) -> CuResult {
    // SAFETY: the caller's pointer.
    let value = *unsafe { value.as_ref() }.ok_or(CuError::INVALID_VALUE)?;
    home(node)?.with(node, |node| {
        let Operation::Kernel(call) = &mut node.operation else {
            return Err(CuError::INVALID_VALUE);
        };
        let call = Arc::make_mut(call);
        match which {
            COOPERATIVE => call.cooperative = value[0] as u32 != 0,
            CLUSTER_DIMENSION => {
                let cluster = [value[0] as u32, (value[0] >> 32) as u32, value[1] as u32];
                call.cluster = cluster.map(|n| n.max(1));
            }
            other => {
                call.attributes.insert(other, value);
            }
        }
        Ok(())
    })?
}

pub(crate) unsafe fn copy_attributes(to: Handle, from: Handle) -> CuResult {
    let from = Operation::Kernel(call_of(from)?);
    home(to)?.with(to, |node| match &node.operation {
        Operation::Kernel(_) => {
            keep_attributes(&from, &mut node.operation);
            Ok(())
        }
        _ => Err(CuError::INVALID_VALUE),
    })?
}

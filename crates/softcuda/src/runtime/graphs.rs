//! Graphs of the runtime: the driver's, with nodes described in the runtime's words.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use crate::driver::graph_nodes::{HostParams, KernelParams, KernelParams2, NodeParams};
use crate::error::{CuError, CuResult};
use crate::objects::fill::FillParams;
use crate::objects::handle::Handle;
use crate::objects::transfer::Copy3d;
use crate::objects::work::EdgeData;
use crate::runtime::Dim3;
use crate::runtime::device::function_of;
use crate::runtime::link::Driver;
use crate::runtime::memory::{Box3d, box_of_bytes, described};
use crate::runtime::register::configuration_error;
use crate::runtime::registered::host_of;
use crate::state::put;

/// `cudaKernelNodeParams`: as the driver's, with a host function in place of the kernel.
pub(crate) type RuntimeKernel = KernelParams;

/// `cudaGraphNodeParams`: laid out as the driver's; kernels and copies are described in the
/// runtime's words.
#[repr(C)]
pub struct RuntimeNode {
    kind: c_int,
    reserved: [c_int; 3],
    value: RuntimeValue,
    reserved2: u64,
}

/// The union in it.
#[repr(C)]
union RuntimeValue {
    words: [u64; 29],
    kernel: RuntimeKernel,
    copy: std::mem::ManuallyDrop<RuntimeCopy>,
}

/// `cudaMemcpyNodeParams`
#[repr(C)]
struct RuntimeCopy {
    flags: c_int,
    reserved: [c_int; 3],
    copy: Box3d,
}

/// Where a node goes: the graph and the nodes before it.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub to: *mut Handle,
    pub graph: Handle,
    pub nodes: *const Handle,
    pub count: usize,
}

/// The driver's parameters for a kernel node.
///
/// # Safety
/// `params` is null or valid.
unsafe fn kernel(driver: &Driver, params: *const RuntimeKernel) -> Result<KernelParams2, CuError> {
    // SAFETY: the caller's promise.
    let given = unsafe { params.as_ref() }.ok_or(CuError::INVALID_VALUE)?;
    let host = given.function as *const c_void;
    Ok(KernelParams2 {
        first: KernelParams {
            function: function_of(driver, host)?,
            ..*given
        },
        kernel: 0,
        context: 0,
    })
}

/// The runtime has an error of its own for impossible sizes.
///
/// # Safety
/// `params` is null or valid.
unsafe fn sizes(result: CuResult, params: *const RuntimeKernel) -> CuResult {
    // SAFETY: the caller's promise.
    let given = unsafe { params.as_ref() }.ok_or(CuError::INVALID_VALUE)?;
    let dim = |[x, y, z]: [u32; 3]| Dim3 { x, y, z };
    result.map_err(|error| configuration_error(error, dim(given.grid), dim(given.block)))
}

/// # Safety
/// Pointers are null or valid.
pub(crate) unsafe fn add_kernel(
    driver: &Driver,
    at: Place,
    params: *const RuntimeKernel,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe {
        let given = kernel(driver, params)?;
        let done =
            driver.cuGraphAddKernelNode_v2(at.to, at.graph, at.nodes, at.count, &raw const given);
        sizes(done, params)
    }
}

/// # Safety
/// Pointers are null or valid.
pub(crate) unsafe fn set_kernel(
    driver: &Driver,
    exec: Option<Handle>,
    node: Handle,
    params: *const RuntimeKernel,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe {
        let given = kernel(driver, params)?;
        let done = match exec {
            None => driver.cuGraphKernelNodeSetParams_v2(node, &raw const given),
            Some(exec) => driver.cuGraphExecKernelNodeSetParams_v2(exec, node, &raw const given),
        };
        sizes(done, params)
    }
}

/// # Safety
/// `to` is null or valid for a write.
pub(crate) unsafe fn get_kernel(driver: &Driver, node: Handle, to: *mut RuntimeKernel) -> CuResult {
    let mut found = MaybeUninit::<KernelParams2>::uninit();
    // SAFETY: a local, which is written if it succeeds; then the caller's pointer.
    unsafe {
        driver.cuGraphKernelNodeGetParams_v2(node, found.as_mut_ptr())?;
        let found = found.assume_init();
        let named = match found.first.function {
            0 => found.kernel,
            function => function,
        };
        let function = host_of(driver, named)? as Handle;
        put(
            to,
            RuntimeKernel {
                function,
                ..found.first
            },
        )
    }
}

/// # Safety
/// Pointers are null or valid.
pub(crate) unsafe fn add_copy(driver: &Driver, at: Place, copy: *const Box3d) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe {
        let copy = described(driver, copy)?;
        add_described(driver, at, &copy)
    }
}

/// # Safety
/// As [`add_copy`].
unsafe fn add_described(driver: &Driver, at: Place, copy: &Copy3d) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe {
        let context = current(driver)?;
        driver.cuGraphAddMemcpyNode(at.to, at.graph, at.nodes, at.count, copy, context)
    }
}

/// Bytes in a row.
///
/// # Safety
/// As [`add_copy`].
pub(crate) unsafe fn add_row(
    driver: &Driver,
    at: Place,
    [to, from]: [u64; 2],
    bytes: usize,
    kind: u32,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { add_described(driver, at, &box_of_bytes(to, from, bytes, kind)?) }
}

/// # Safety
/// Pointers are null or valid.
pub(crate) unsafe fn set_copy(
    driver: &Driver,
    exec: Option<Handle>,
    node: Handle,
    copy: *const Box3d,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe {
        let copy = described(driver, copy)?;
        set_described(driver, exec, node, &copy)
    }
}

/// # Safety
/// As [`set_copy`].
unsafe fn set_described(
    driver: &Driver,
    exec: Option<Handle>,
    node: Handle,
    copy: &Copy3d,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe {
        match exec {
            None => driver.cuGraphMemcpyNodeSetParams(node, copy),
            Some(exec) => {
                let context = current(driver)?;
                driver.cuGraphExecMemcpyNodeSetParams(exec, node, copy, context)
            }
        }
    }
}

/// # Safety
/// As [`set_copy`].
pub(crate) unsafe fn set_row(
    driver: &Driver,
    exec: Option<Handle>,
    node: Handle,
    [to, from]: [u64; 2],
    bytes: usize,
    kind: u32,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { set_described(driver, exec, node, &box_of_bytes(to, from, bytes, kind)?) }
}

/// The context that the driver's functions ask for and the runtime's do not.
pub(crate) fn current(driver: &Driver) -> Result<Handle, CuError> {
    let mut context = 0;
    // SAFETY: a valid pointer.
    unsafe { driver.cuCtxGetCurrent(&raw mut context) }?;
    Ok(context)
}

/// The driver's description of any node.
///
/// # Safety
/// `params` is null or valid.
unsafe fn any(driver: &Driver, params: *const RuntimeNode) -> Result<NodeParams, CuError> {
    /// `cudaGraphNodeType…`, the same numbers as the driver's.
    const KERNEL: c_int = 0;
    const COPY: c_int = 1;
    // SAFETY: the caller's promise.
    let params = unsafe { params.as_ref() }.ok_or(CuError::INVALID_VALUE)?;
    // SAFETY: the union holds what its kind says.
    unsafe {
        Ok(match params.kind {
            KERNEL => NodeParams::kernel(kernel(driver, &raw const params.value.kernel)?),
            COPY => {
                let copy = described(driver, &raw const params.value.copy.copy)?;
                NodeParams::copy(copy, current(driver)?)
            }
            kind => NodeParams::other(kind, params.value.words),
        })
    }
}

/// # Safety
/// Pointers are null or valid.
pub(crate) unsafe fn add_any(
    driver: &Driver,
    at: Place,
    data: *const EdgeData,
    params: *mut RuntimeNode,
) -> CuResult {
    /// `cudaGraphNodeTypeGraph`, `…TypeConditional`
    const GRAPH: c_int = 4;
    const CONDITIONAL: c_int = 13;
    // SAFETY: the caller's promise.
    unsafe {
        let mut given = any(driver, params)?;
        let Place {
            to,
            graph,
            nodes,
            count,
        } = at;
        driver.cuGraphAddNode_v2(to, graph, nodes, data, count, &raw mut given)?;
        if (*params).kind == GRAPH {
            (*params).value.words[0] = given.word(0);
        }
        if (*params).kind == CONDITIONAL {
            (*params).value.words[2] = given.word(2);
        }
    }
    Ok(())
}

/// # Safety
/// `params` is null or valid.
pub(crate) unsafe fn set_any(
    driver: &Driver,
    exec: Option<Handle>,
    node: Handle,
    params: *mut RuntimeNode,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe {
        let mut given = any(driver, params)?;
        match exec {
            None => driver.cuGraphNodeSetParams(node, &raw mut given),
            Some(exec) => driver.cuGraphExecNodeSetParams(exec, node, &raw mut given),
        }
    }
}

const _: () = assert!(size_of::<RuntimeNode>() == 256);
const _: () = assert!(size_of::<FillParams>() == 40 && size_of::<HostParams>() == 16);

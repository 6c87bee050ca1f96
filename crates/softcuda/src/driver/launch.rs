//! Launches. A kernel runs in its stream; a trap makes the context's error sticky and is told in
//! one line on stderr ([`crate::operation`]), which a real driver does not do, but which is what
//! somebody without a GPU wants to see.
#![expect(clippy::too_many_arguments, reason = "signatures are CUDA's")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use warpbpf_softgpu::MAX_THREADS_PER_BLOCK;

use crate::driver::function::resident_blocks;
use crate::driver::launch_config::LaunchConfig;
use crate::driver::module::resolve;
use crate::driver::{capture, stream_handles, streams};
use crate::error::{CuError, CuResult};
use crate::objects::handle::Handle;
use crate::objects::kernel_call::{HostCall, KernelCall, Values};
use crate::objects::module::Function;
use crate::objects::stream::Run;
use crate::objects::work::Operation;
use crate::state::{Soft, context, current, soft};

/// A launch as a program asks for it, apart from stream and parameters.
pub(crate) struct Request {
    pub function: Handle,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    pub shared: u32,
    pub cooperative: bool,
}

/// The parameter block, from either way to give it.
///
/// # Safety
/// `params` must be null or hold a pointer to each parameter; `extra` null or a list as CUDA
/// describes.
unsafe fn param_block(
    function: &Function,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<Vec<u8>, CuError> {
    /// `CU_LAUNCH_PARAM_END`, `…_BUFFER_POINTER`, `…_BUFFER_SIZE`
    const END: usize = 0;
    const BUFFER: usize = 1;
    const SIZE: usize = 2;
    let mut block = vec![0u8; function.kernel.param_bytes()];
    if block.is_empty() {
        return Ok(block);
    }
    match (params.is_null(), extra.is_null()) {
        (false, true) => {
            for (at, param) in function.kernel.params().iter().enumerate() {
                // SAFETY: one pointer per parameter.
                let from = unsafe { *params.add(at) }.cast::<u8>();
                if from.is_null() {
                    return Err(CuError::INVALID_VALUE);
                }
                // SAFETY: it points to a value of the parameter's size.
                let bytes = unsafe { std::slice::from_raw_parts(from, param.size) };
                block[param.offset..param.offset + param.size].copy_from_slice(bytes);
            }
        }
        (true, false) => {
            let (mut buffer, mut size) = (std::ptr::null::<u8>(), 0usize);
            for at in 0.. {
                // SAFETY: the list is a row of pairs that ends in `END`.
                let key = unsafe { *extra.add(2 * at) } as usize;
                if key == END {
                    break;
                }
                // SAFETY: as above.
                let value = unsafe { *extra.add(2 * at + 1) };
                match key {
                    BUFFER => buffer = value.cast(),
                    // SAFETY: this key's value points to the size.
                    SIZE if !value.is_null() => size = unsafe { *value.cast::<usize>() },
                    _ => return Err(CuError::INVALID_VALUE),
                }
            }
            if buffer.is_null() || size < block.len() {
                return Err(CuError::INVALID_VALUE);
            }
            let bytes = block.len();
            // SAFETY: the buffer holds `size` bytes, which is at least as many.
            block.copy_from_slice(unsafe { std::slice::from_raw_parts(buffer, bytes) });
        }
        (true, true) | (false, false) => return Err(CuError::INVALID_VALUE),
    }
    Ok(block)
}

fn check_geometry(soft: &Soft, function: &Arc<Function>, request: &Request) -> CuResult {
    let Request {
        grid,
        block,
        cluster,
        ..
    } = *request;
    if grid.contains(&0) || grid[0] > i32::MAX as u32 || grid[1] > 65_535 || grid[2] > 65_535 {
        return Err(CuError::INVALID_VALUE);
    }
    if block.contains(&0) || block[0] > 1024 || block[1] > 1024 || block[2] > 64 {
        return Err(CuError::INVALID_VALUE);
    }
    let info = function.info()?;
    let threads: u32 = block.iter().product();
    if threads > MAX_THREADS_PER_BLOCK || threads > info.max_threads {
        return Err(CuError::INVALID_VALUE);
    }
    if info
        .required_threads
        .is_some_and(|required| required != block)
    {
        return Err(CuError::INVALID_VALUE);
    }
    if request.shared > function.dynamic_shared_limit()? {
        return Err(CuError::INVALID_VALUE);
    }
    let per_cluster: u64 = cluster.iter().map(|&n| u64::from(n)).product();
    if per_cluster == 0
        || per_cluster > 16
        || (0..3).any(|axis| !grid[axis].is_multiple_of(cluster[axis]))
    {
        return Err(CuError::INVALID_CLUSTER_SIZE);
    }
    if request.cooperative {
        let blocks: u64 = grid.iter().map(|&n| u64::from(n)).product();
        if blocks > resident_blocks(soft, function, threads, request.shared)? {
            return Err(CuError::COOPERATIVE_LAUNCH_TOO_LARGE);
        }
    }
    Ok(())
}

/// A checked launch with its parameters.
///
/// # Safety
/// As for [`param_block`].
pub(crate) unsafe fn prepare(
    soft: &Soft,
    request: &Request,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<KernelCall, CuError> {
    let function = resolve(soft, request.function)?;
    context(soft, function.module.context)?.check()?;
    check_geometry(soft, &function, request)?;
    // SAFETY: the caller's promise.
    let block = unsafe { param_block(&function, params, extra)? };
    Ok(KernelCall {
        grid: request.grid,
        block: request.block,
        cluster: request.cluster,
        shared: request.shared,
        cooperative: request.cooperative,
        attributes: BTreeMap::new(),
        values: Arc::new(Values::new(&function, block)),
        function,
    })
}

/// # Safety
/// As for [`param_block`].
unsafe fn launch(
    request: &Request,
    stream: Handle,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CuResult {
    let soft = soft()?;
    current()?;
    // SAFETY: the caller's promise.
    let call = unsafe { prepare(soft, request, params, extra)? };
    let context = context(soft, call.function.module.context)?;
    let stream = stream_handles::find(soft, &context, stream)?;
    streams::perform(soft, &context, &stream, Operation::Kernel(Arc::new(call))).map(|_| ())
}

pub(crate) unsafe fn kernel(
    function: Handle,
    gx: u32,
    gy: u32,
    gz: u32,
    bx: u32,
    by: u32,
    bz: u32,
    shared: u32,
    stream: Handle,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CuResult {
    let request = Request {
        function,
        grid: [gx, gy, gz],
        block: [bx, by, bz],
        cluster: [1; 3],
        shared,
        cooperative: false,
    };
    // SAFETY: the caller's parameters.
    unsafe { launch(&request, stream, params, extra) }
}

pub(crate) unsafe fn cooperative(
    function: Handle,
    gx: u32,
    gy: u32,
    gz: u32,
    bx: u32,
    by: u32,
    bz: u32,
    shared: u32,
    stream: Handle,
    params: *mut *mut c_void,
) -> CuResult {
    let request = Request {
        function,
        grid: [gx, gy, gz],
        block: [bx, by, bz],
        cluster: [1; 3],
        shared,
        cooperative: true,
    };
    // SAFETY: the caller's parameters.
    unsafe { launch(&request, stream, params, std::ptr::null_mut()) }
}

pub(crate) unsafe fn kernel_ex(
    config: *const LaunchConfig,
    function: Handle,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CuResult {
    if config.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null; valid by the caller's promise.
    let config = unsafe { &*config };
    // SAFETY: as above.
    let attributes = unsafe { config.attributes() };
    let request = Request {
        function,
        grid: config.grid,
        block: config.block,
        cluster: attributes.cluster.map(|n| n.max(1)),
        shared: config.shared,
        cooperative: attributes.cooperative,
    };
    // SAFETY: the caller's parameters.
    unsafe { launch(&request, config.stream, params, extra) }
}

pub(crate) unsafe fn host_function(
    stream: Handle,
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
) -> CuResult {
    let soft = soft()?;
    let context = current()?;
    let stream = stream_handles::find(soft, &context, stream)?;
    let function = function.ok_or(CuError::INVALID_VALUE)?;
    let data = data as usize;
    let call = Operation::Host(HostCall { function, data });
    streams::perform(soft, &context, &stream, call).map(|_| ())
}

pub(crate) unsafe fn add_callback(
    stream: Handle,
    callback: Option<unsafe extern "C" fn(Handle, u32, *mut c_void)>,
    data: *mut c_void,
    flags: u32,
) -> CuResult {
    let soft = soft()?;
    let context = current()?;
    let found = stream_handles::find(soft, &context, stream)?;
    let callback = callback.ok_or(CuError::INVALID_VALUE)?;
    if flags != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    // CUDA's: what is captured may run more than once, and a callback is for once.
    capture::refuse(soft, &context, &found)?;
    let data = data as usize;
    streams::submit(soft, &context.clone(), &found, Run::Elsewhere, move || {
        let status = context.sticky.load(Ordering::Acquire);
        // SAFETY: the program asked for this call.
        unsafe { callback(stream, status, data as *mut c_void) };
    });
    Ok(())
}

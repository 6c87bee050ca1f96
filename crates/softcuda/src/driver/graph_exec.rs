//! Executable graphs: made, launched, changed, destroyed.

use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex};

use crate::driver::graphs::graph;
use crate::driver::{capture, stream_handles, streams};
use crate::error::{CuError, CuResult};
use crate::objects::executable::{Exec, Step};
use crate::objects::handle::{Handle, lock, new_handle};
use crate::objects::stream::Run;
use crate::objects::work::Operation;
use crate::state::{current, put, put_if, soft};

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`, `…_UPLOAD`, `…_DEVICE_LAUNCH`,
/// `…_USE_NODE_PRIORITY`
const ALL_FLAGS: u64 = 15;
const UPLOAD: u64 = 2;
const DEVICE_LAUNCH: u64 = 4;

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`
#[repr(C)]
pub struct InstantiateParams {
    flags: u64,
    stream: Handle,
    error_node: Handle,
    result: c_int,
}

/// `CUgraphExecUpdateResultInfo`
#[repr(C)]
pub struct UpdateResult {
    result: u32,
    node: Handle,
    from: Handle,
}

fn find(handle: Handle) -> Result<Arc<Exec>, CuError> {
    soft()?.execs.get(handle).ok_or(CuError::INVALID_VALUE)
}

pub(crate) unsafe fn instantiate(to: *mut Handle, of: Handle, flags: u64) -> CuResult {
    let soft = soft()?;
    let of = graph(of)?;
    if to.is_null() || flags & !ALL_FLAGS != 0 || of.embedded {
        return Err(CuError::INVALID_VALUE);
    }
    if flags & DEVICE_LAUNCH != 0 {
        return Err(CuError::NOT_SUPPORTED);
    }
    let exec = Arc::new(Exec {
        handle: new_handle(),
        flags,
        template: Mutex::new(of.template()?),
        running: Mutex::new(()),
    });
    soft.execs.add(exec.handle, Arc::clone(&exec));
    // SAFETY: the caller's pointer.
    unsafe { put(to, exec.handle) }
}

/// As it was before CUDA 12: with a place for words that nobody has to say.
pub(crate) unsafe fn instantiate_v1(
    to: *mut Handle,
    of: Handle,
    error_node: *mut Handle,
    log: *mut c_char,
    room: usize,
) -> CuResult {
    // SAFETY: the caller's pointers.
    unsafe {
        put_if(error_node, 0);
        if room > 0 {
            put_if(log, 0);
        }
        instantiate(to, of, 0)
    }
}

pub(crate) unsafe fn instantiate_with_params(
    to: *mut Handle,
    of: Handle,
    params: *mut InstantiateParams,
) -> CuResult {
    /// `CUDA_GRAPH_INSTANTIATE_ERROR`, `…_INVALID_STRUCTURE`
    const ERROR: c_int = 1;
    const INVALID_STRUCTURE: c_int = 2;
    // SAFETY: the caller's pointer.
    let params = unsafe { params.as_mut() }.ok_or(CuError::INVALID_VALUE)?;
    params.error_node = 0;
    // SAFETY: the caller's pointer.
    let done = unsafe { instantiate(to, of, params.flags) };
    params.result = match done {
        Ok(()) => 0,
        Err(_) if graph(of).is_ok_and(|of| of.template().is_err()) => INVALID_STRUCTURE,
        Err(_) => ERROR,
    };
    done?;
    if params.flags & UPLOAD != 0 {
        stream_handles::known(params.stream)?;
    }
    Ok(())
}

pub(crate) unsafe fn flags(exec: Handle, to: *mut u64) -> CuResult {
    // SAFETY: the caller's pointer.
    unsafe { put(to, find(exec)?.flags & !UPLOAD) }
}

/// Who runs it goes on.
pub(crate) unsafe fn destroy(exec: Handle) -> CuResult {
    let gone = soft()?.execs.remove(exec);
    gone.map(|_| ()).ok_or(CuError::INVALID_VALUE)
}

/// Nothing has to be brought anywhere.
pub(crate) unsafe fn upload(exec: Handle, stream: Handle) -> CuResult {
    find(exec)?;
    let (soft, context, stream) = stream_handles::known(stream)?;
    capture::refuse(soft, &context, &stream)
}

pub(crate) unsafe fn launch(exec: Handle, stream: Handle) -> CuResult {
    let exec = find(exec)?;
    let (soft, context, stream) = stream_handles::known(stream)?;
    // As an H200's driver does it.
    capture::refuse(soft, &context, &stream)?;
    let (mut operations, mut conditions) = (Vec::new(), Vec::new());
    let template = lock(&exec.template);
    template.operations(&mut operations);
    template.conditions(&mut conditions);
    drop(template);
    let elsewhere = operations.iter().any(|o| o.place() == Run::Elsewhere);
    let run = if elsewhere { Run::Elsewhere } else { Run::Here };
    context.enter();
    let own = Arc::clone(&context);
    streams::submit(soft, &context, &stream, run, move || {
        let _running = lock(&exec.running);
        conditions
            .iter()
            .for_each(|condition| condition.begin(soft));
        let goes_on = |operation: &Operation| {
            own.check().is_ok() || matches!(operation, Operation::Host(_) | Operation::Record(_))
        };
        operations
            .iter()
            .for_each(|planned| planned.run(soft, &goes_on));
    });
    Ok(())
}

/// Changes what a node does in an executable graph, from its next launch on.
pub(crate) fn change<T>(
    exec: Handle,
    node: Handle,
    change: impl FnOnce(&mut Step) -> Result<T, CuError>,
) -> Result<T, CuError> {
    current()?;
    let exec = find(exec)?;
    let mut template = lock(&exec.template);
    change(template.step(node).ok_or(CuError::INVALID_VALUE)?)
}

/// Only nodes of these kinds can be switched off.
fn can_be_off(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Kernel(_) | Operation::Copy(_) | Operation::Fill(_)
    )
}

pub(crate) unsafe fn set_enabled(exec: Handle, node: Handle, enabled: u32) -> CuResult {
    change(exec, node, |step| {
        if !can_be_off(&step.operation) {
            return Err(CuError::INVALID_VALUE);
        }
        step.enabled = enabled != 0;
        Ok(())
    })
}

pub(crate) unsafe fn get_enabled(exec: Handle, node: Handle, to: *mut u32) -> CuResult {
    let enabled = change(exec, node, |step| match can_be_off(&step.operation) {
        true => Ok(step.enabled),
        false => Err(CuError::INVALID_VALUE),
    })?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, u32::from(enabled)) }
}

pub(crate) unsafe fn update_v2(exec: Handle, to: Handle, result: *mut UpdateResult) -> CuResult {
    let exec = find(exec)?;
    let new = graph(to)?.template()?;
    let mut template = lock(&exec.template);
    let compared = template.compare(&new);
    let told = match compared {
        Ok(()) => UpdateResult {
            result: 0,
            node: 0,
            from: 0,
        },
        Err(mismatch) => UpdateResult {
            result: mismatch.reason,
            node: mismatch.node,
            from: mismatch.from,
        },
    };
    // SAFETY: the caller's pointer.
    unsafe { put(result, told)? };
    match compared {
        Ok(()) => {
            template.replace(new);
            Ok(())
        }
        Err(_) => Err(CuError::GRAPH_EXEC_UPDATE_FAILURE),
    }
}

pub(crate) unsafe fn update_v1(
    exec: Handle,
    to: Handle,
    node: *mut Handle,
    result: *mut u32,
) -> CuResult {
    let mut told = UpdateResult {
        result: 0,
        node: 0,
        from: 0,
    };
    // SAFETY: a local, then the caller's pointers.
    unsafe {
        let done = update_v2(exec, to, &raw mut told);
        put_if(node, told.node);
        put_if(result, told.result);
        done
    }
}

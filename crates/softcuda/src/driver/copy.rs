//! Copies of bytes in a row, by direction and by unified address, and what all copies and fills
//! have in common: where bytes are, and how work on them is put into a stream.

use std::ffi::c_void;
use std::sync::Arc;

use crate::driver::streams::{self, Performed};
use crate::driver::{capture, stream_handles};
use crate::error::{CuError, CuResult};
use crate::objects::context::Context;
use crate::objects::handle::Handle;
use crate::objects::stream::{Run, Stream};
use crate::objects::transfer::{Place, Transfer};
use crate::objects::work::Operation;
use crate::state::{Soft, current, soft};
use crate::work::bytes::{any_place, device_place};

/// When the call returns.
#[derive(Clone, Copy)]
pub(crate) enum Wait {
    /// When the bytes have arrived.
    Yes,
    /// When the work is in the stream.
    No,
}

pub(crate) struct Work {
    pub(crate) soft: &'static Soft,
    context: Arc<Context>,
    stream: Arc<Stream>,
    wait: Wait,
}

impl Work {
    pub(crate) fn blocking() -> Result<Work, CuError> {
        let soft = soft()?;
        let context = current()?;
        let stream = Arc::clone(&context.null_stream);
        capture::unsafe_call(soft)?;
        Ok(Work {
            soft,
            context,
            stream,
            wait: Wait::Yes,
        })
    }

    /// In a stream. Copies that touch the program's pageable memory are done when the call returns:
    /// it may reuse it.
    pub(crate) fn in_stream(handle: Handle, wait: Wait) -> Result<Work, CuError> {
        let soft = soft()?;
        let context = current()?;
        let stream = stream_handles::find(soft, &context, handle)?;
        Ok(Work {
            soft,
            context,
            stream,
            wait,
        })
    }

    /// Work that no graph can hold.
    pub(crate) fn run(self, job: impl FnOnce(&Soft) + Send + 'static) -> CuResult {
        let (soft, context) = (self.soft, Arc::clone(&self.context));
        capture::refuse(soft, &context, &self.stream)?;
        streams::submit(soft, &self.context, &self.stream, Run::Here, move || {
            if context.check().is_ok() {
                job(soft);
            }
        });
        self.wait()
    }

    /// An operation, which is a node if its stream is captured.
    pub(crate) fn perform(self, operation: Operation) -> CuResult {
        match streams::perform(self.soft, &self.context, &self.stream, operation)? {
            Performed::Submitted => self.wait(),
            Performed::Captured => Ok(()),
        }
    }

    fn wait(self) -> CuResult {
        match self.wait {
            Wait::No => Ok(()),
            Wait::Yes => {
                self.stream.synchronize();
                self.context.flush_printed();
                self.context.check()
            }
        }
    }

    fn copy(self, to: Place, from: Place, bytes: usize) -> CuResult {
        if bytes == 0 {
            return Ok(());
        }
        self.perform(Operation::Copy(
            Transfer::row(to, from, bytes as u64).into(),
        ))
    }
}

/// Whether a copy between these may still be under way when the call returns.
pub(crate) fn wait_for(soft: &Soft, places: [Place; 2]) -> Wait {
    let pageable = |place: Place| match place {
        Place::Arena(_) => false,
        Place::Host(address) => soft.range_of(address).is_none(),
    };
    if places.into_iter().any(pageable) {
        Wait::Yes
    } else {
        Wait::No
    }
}

pub(crate) unsafe fn host_to_device(to: u64, from: *const c_void, bytes: usize) -> CuResult {
    let work = Work::blocking()?;
    let to = device_place(work.soft, to, bytes as u64)?;
    let from = any_place(work.soft, from as u64, bytes as u64)?;
    work.copy(to, from, bytes)
}

pub(crate) unsafe fn device_to_host(to: *mut c_void, from: u64, bytes: usize) -> CuResult {
    let work = Work::blocking()?;
    let from = device_place(work.soft, from, bytes as u64)?;
    let to = any_place(work.soft, to as u64, bytes as u64)?;
    work.copy(to, from, bytes)
}

pub(crate) unsafe fn device_to_device(to: u64, from: u64, bytes: usize) -> CuResult {
    let work = Work::blocking()?;
    let from = device_place(work.soft, from, bytes as u64)?;
    let to = device_place(work.soft, to, bytes as u64)?;
    work.copy(to, from, bytes)
}

pub(crate) unsafe fn unified(to: u64, from: u64, bytes: usize) -> CuResult {
    let work = Work::blocking()?;
    let from = any_place(work.soft, from, bytes as u64)?;
    let to = any_place(work.soft, to, bytes as u64)?;
    work.copy(to, from, bytes)
}

pub(crate) unsafe fn unified_async(to: u64, from: u64, bytes: usize, stream: Handle) -> CuResult {
    let soft = soft()?;
    current()?;
    let from = any_place(soft, from, bytes as u64)?;
    let to = any_place(soft, to, bytes as u64)?;
    Work::in_stream(stream, wait_for(soft, [to, from]))?.copy(to, from, bytes)
}

pub(crate) unsafe fn host_to_device_async(
    to: u64,
    from: *const c_void,
    bytes: usize,
    stream: Handle,
) -> CuResult {
    let soft = soft()?;
    current()?;
    device_place(soft, to, bytes as u64)?;
    // SAFETY: as the caller promises.
    unsafe { unified_async(to, from as u64, bytes, stream) }
}

pub(crate) unsafe fn device_to_host_async(
    to: *mut c_void,
    from: u64,
    bytes: usize,
    stream: Handle,
) -> CuResult {
    let soft = soft()?;
    current()?;
    device_place(soft, from, bytes as u64)?;
    // SAFETY: as the caller promises.
    unsafe { unified_async(to as u64, from, bytes, stream) }
}

pub(crate) unsafe fn device_to_device_async(
    to: u64,
    from: u64,
    bytes: usize,
    stream: Handle,
) -> CuResult {
    let soft = soft()?;
    current()?;
    device_place(soft, from, bytes as u64)?;
    device_place(soft, to, bytes as u64)?;
    // SAFETY: as the caller promises.
    unsafe { unified_async(to, from, bytes, stream) }
}

pub(crate) unsafe fn peer(
    to: u64,
    _to_context: Handle,
    from: u64,
    _from_context: Handle,
    bytes: usize,
) -> CuResult {
    // SAFETY: addresses say where they are: a copy like any other, and it needs no peer access.
    unsafe { device_to_device(to, from, bytes) }
}

pub(crate) unsafe fn peer_async(
    to: u64,
    _to_context: Handle,
    from: u64,
    _from_context: Handle,
    bytes: usize,
    stream: Handle,
) -> CuResult {
    // SAFETY: as above.
    unsafe { device_to_device_async(to, from, bytes, stream) }
}

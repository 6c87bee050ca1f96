//! Streams and events as the API shows them; how work waits for work is in [`crate::stream`].

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::driver::capture;
use crate::driver::stream_handles::known;
use crate::error::{CuError, CuResult};
use crate::objects::context::Context;
use crate::objects::handle::{Handle, lock};
use crate::objects::stream::{Run, Stream};
use crate::objects::work::{Event, Operation};
use crate::state::{Soft, context, current, put, put_if, soft};

/// `CU_STREAM_NON_BLOCKING`
const NON_BLOCKING: u32 = 1;
/// The range of priorities is what an H200 tells.
pub(crate) const GREATEST_PRIORITY: c_int = -5;

/// Submits work with the order that the NULL stream imposes: it waits for all blocking streams, and
/// they for it.
pub(crate) fn submit(
    soft: &Soft,
    context: &Context,
    stream: &Arc<Stream>,
    run: Run,
    job: impl FnOnce() + Send + 'static,
) {
    if stream.handle == context.null_stream.handle {
        for other in soft.streams.all() {
            if other.context == context.handle && other.flags & NON_BLOCKING == 0 {
                other.synchronize();
            }
        }
    } else if stream.flags & NON_BLOCKING == 0 {
        context.null_stream.synchronize();
    }
    let run = if soft.config.background {
        Run::Elsewhere
    } else {
        run
    };
    stream.submit(run, job);
}

/// What became of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Performed {
    /// The stream runs it.
    Submitted,
    /// It is a node of the graph that the stream captures.
    Captured,
}

/// Runs an operation in a stream, or captures it.
pub(crate) fn perform(
    soft: &'static Soft,
    context: &Arc<Context>,
    stream: &Arc<Stream>,
    operation: Operation,
) -> Result<Performed, CuError> {
    if capture::take(soft, context, stream, &operation)? {
        return Ok(Performed::Captured);
    }
    if matches!(operation, Operation::Kernel(_)) {
        context.enter();
    }
    let own = Arc::clone(context);
    submit(soft, context, stream, operation.place(), move || {
        if own.check().is_ok() || matches!(operation, Operation::Host(_)) {
            operation.run(soft);
        }
    });
    Ok(Performed::Submitted)
}

pub(crate) unsafe fn create_with_priority(
    to: *mut Handle,
    flags: u32,
    priority: c_int,
) -> CuResult {
    let soft = soft()?;
    let context = current()?;
    if flags & !NON_BLOCKING != 0 || to.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    let stream = Stream::new(context.handle, flags, priority.clamp(GREATEST_PRIORITY, 0));
    soft.streams.add(stream.handle, Arc::clone(&stream));
    // SAFETY: the caller's pointer.
    unsafe { put(to, stream.handle) }
}

pub(crate) unsafe fn create(to: *mut Handle, flags: u32) -> CuResult {
    // SAFETY: the caller's pointer.
    unsafe { create_with_priority(to, flags, 0) }
}

/// Work that is pending still runs: the thread ends behind it.
pub(crate) unsafe fn destroy(handle: Handle) -> CuResult {
    let soft = soft()?;
    let stream = soft.streams.remove(handle).ok_or(CuError::INVALID_HANDLE)?;
    capture::forget_stream(soft, handle);
    stream.close();
    Ok(())
}

pub(crate) unsafe fn synchronize(handle: Handle) -> CuResult {
    let (soft, context, stream) = known(handle)?;
    capture::refuse(soft, &context, &stream)?;
    capture::unsafe_call(soft)?;
    if stream.handle == context.null_stream.handle {
        return context.synchronize();
    }
    stream.synchronize();
    context.flush_printed();
    context.check()
}

pub(crate) unsafe fn query(handle: Handle) -> CuResult {
    let (soft, context, stream) = known(handle)?;
    capture::refuse(soft, &context, &stream)?;
    capture::unsafe_call(soft)?;
    if stream.idle() {
        Ok(())
    } else {
        Err(CuError::NOT_READY)
    }
}

pub(crate) unsafe fn priority(handle: Handle, to: *mut c_int) -> CuResult {
    let (_, _, stream) = known(handle)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, stream.priority) }
}

pub(crate) unsafe fn flags(handle: Handle, to: *mut u32) -> CuResult {
    let (_, _, stream) = known(handle)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, stream.flags) }
}

pub(crate) unsafe fn id(handle: Handle, to: *mut u64) -> CuResult {
    let (_, _, stream) = known(handle)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, stream.id) }
}

pub(crate) unsafe fn device(handle: Handle, to: *mut c_int) -> CuResult {
    let (_, context, _) = known(handle)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, context.device as c_int) }
}

pub(crate) unsafe fn context_of(handle: Handle, to: *mut Handle) -> CuResult {
    let (_, _, stream) = known(handle)?;
    // SAFETY: the caller's pointer.
    unsafe { put(to, stream.context) }
}

/// There are no green contexts: every stream is of an ordinary one.
pub(crate) unsafe fn context_of_v2(
    handle: Handle,
    to: *mut Handle,
    green: *mut Handle,
) -> CuResult {
    // SAFETY: the caller's pointers.
    unsafe {
        context_of(handle, to)?;
        put_if(green, 0);
    }
    Ok(())
}

pub(crate) unsafe fn wait_event(handle: Handle, event: Handle, flags: u32) -> CuResult {
    let (soft, context, stream) = known(handle)?;
    let event = soft.events.get(event).ok_or(CuError::INVALID_HANDLE)?;
    if flags & !EXTERNAL != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    if capture::wait(soft, &context, &stream, &event, flags == EXTERNAL)? {
        return Ok(());
    }
    if !event.done() {
        submit(soft, &context, &stream, Run::Elsewhere, move || {
            event.wait()
        });
    }
    Ok(())
}

pub(crate) unsafe fn attach_memory(
    handle: Handle,
    _address: u64,
    _bytes: usize,
    _flags: u32,
) -> CuResult {
    known(handle).map(|_| ())
}

pub(crate) unsafe fn copy_attributes(to: Handle, from: Handle) -> CuResult {
    let ((_, _, to), (_, _, from)) = (known(to)?, known(from)?);
    let copied = lock(&from.attributes).clone();
    *lock(&to.attributes) = copied;
    Ok(())
}

/// `CU_EVENT_DISABLE_TIMING`
const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS`
const EVENT_FLAGS: u32 = 7;

pub(crate) unsafe fn event_create(to: *mut Handle, flags: u32) -> CuResult {
    let soft = soft()?;
    let context = current()?;
    if flags & !EVENT_FLAGS != 0 || to.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    let event = Event::new(context.handle, flags);
    soft.events.add(event.handle, Arc::clone(&event));
    // SAFETY: the caller's pointer.
    unsafe { put(to, event.handle) }
}

pub(crate) fn event(handle: Handle) -> Result<Arc<Event>, CuError> {
    soft()?.events.get(handle).ok_or(CuError::INVALID_HANDLE)
}

pub(crate) unsafe fn event_destroy(handle: Handle) -> CuResult {
    soft()?
        .events
        .remove(handle)
        .map(|_| ())
        .ok_or(CuError::INVALID_HANDLE)
}

pub(crate) unsafe fn event_record(handle: Handle, stream: Handle) -> CuResult {
    // SAFETY: no pointers.
    unsafe { event_record_flags(handle, stream, 0) }
}

/// `CU_EVENT_RECORD_EXTERNAL`, `CU_EVENT_WAIT_EXTERNAL`: in a capture, a node of its own and not an
/// order among nodes.
const EXTERNAL: u32 = 1;

pub(crate) unsafe fn event_record_flags(handle: Handle, stream: Handle, flags: u32) -> CuResult {
    let event = event(handle)?;
    let (soft, context, stream) = known(stream)?;
    if flags & !EXTERNAL != 0 {
        return Err(CuError::INVALID_VALUE);
    }
    if capture::record(soft, &context, &stream, &event, flags == EXTERNAL)? {
        return Ok(());
    }
    let ticket = event.submit();
    submit(soft, &context, &stream, Run::Here, move || {
        event.complete(ticket)
    });
    Ok(())
}

/// Puts an event behind what is in all streams of a context.
pub(crate) unsafe fn context_event(handle: Handle, of: Handle) -> CuResult {
    let soft = soft()?;
    capture::unsafe_call(soft)?;
    let (context, event) = (context(soft, handle)?, event(of)?);
    if event.context != context.handle {
        return Err(CuError::INVALID_HANDLE);
    }
    capture::refuse_context(soft, &context)?;
    let ticket = event.submit();
    let others = soft.streams.all().into_iter();
    let streams: Vec<_> = others
        .filter(|stream| stream.context == context.handle)
        .chain([Arc::clone(&context.null_stream)])
        .collect();
    let left = Arc::new(AtomicUsize::new(streams.len()));
    for stream in streams {
        let (event, left) = (Arc::clone(&event), Arc::clone(&left));
        stream.submit(Run::Here, move || {
            if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                event.complete(ticket);
            }
        });
    }
    Ok(())
}

pub(crate) unsafe fn event_query(handle: Handle) -> CuResult {
    let event = event(handle)?;
    current()?;
    capture::not_captured(&event)?;
    capture::unsafe_call(soft()?)?;
    if event.done() {
        Ok(())
    } else {
        Err(CuError::NOT_READY)
    }
}

pub(crate) unsafe fn event_synchronize(handle: Handle) -> CuResult {
    let event = event(handle)?;
    let context = current()?;
    capture::not_captured(&event)?;
    capture::unsafe_call(soft()?)?;
    event.wait();
    context.flush_printed();
    context.check()
}

pub(crate) unsafe fn event_elapsed(to: *mut f32, start: Handle, end: Handle) -> CuResult {
    let (start, end) = (event(start)?, event(end)?);
    current()?;
    capture::not_captured(&start)?;
    capture::not_captured(&end)?;
    if (start.flags | end.flags) & DISABLE_TIMING != 0 {
        return Err(CuError::INVALID_HANDLE);
    }
    if !start.done() || !end.done() {
        return Err(CuError::NOT_READY);
    }
    let (Some(from), Some(until)) = (start.at(), end.at()) else {
        return Err(CuError::INVALID_HANDLE);
    };
    let seconds = if until >= from {
        (until - from).as_secs_f64()
    } else {
        -(from - until).as_secs_f64()
    };
    // SAFETY: the caller's pointer.
    unsafe { put(to, (seconds * 1e3) as f32) }
}

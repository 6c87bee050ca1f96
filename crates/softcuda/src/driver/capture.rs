//! Stream capture: what is put into a capturing stream becomes nodes of a graph, in the order that
//! streams and events would impose. What a capture cannot hold fails and spoils it, as with
//! NVIDIA's driver.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::driver::graphs::{behind, graph};
use crate::driver::stream_handles::known;
use crate::error::{CuError, CuResult};
use crate::objects::context::Context;
use crate::objects::handle::{Handle, lock};
use crate::objects::stream::Stream;
use crate::objects::work::{
    Capture, CaptureState, Captured, EdgeData, Event, Graph, Operation, Tip,
};
use crate::per_thread::thread_number;
use crate::state::{Soft, put, put_if};

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`, `…_RELAXED`
const GLOBAL: c_int = 0;
const RELAXED: c_int = 2;
/// `CU_STREAM_CAPTURE_STATUS_NONE`, `…_ACTIVE`, `…_INVALIDATED`
const NOT_CAPTURING: c_int = 0;
const ACTIVE: c_int = 1;
const INVALIDATED: c_int = 2;
/// `CU_STREAM_SET_CAPTURE_DEPENDENCIES`
const REPLACE: u32 = 1;

thread_local! {
    /// What this thread may do while something is captured.
    static MODE: Cell<c_int> = const { Cell::new(GLOBAL) };
}

impl Capture {
    fn spoil(&self) {
        lock(&self.state).spoiled = true;
    }

    fn takes(&self, stream: Handle) -> bool {
        lock(&self.state).tips.contains_key(&stream)
    }

    fn is_over(&self, soft: &Soft) -> bool {
        !lock(&soft.captures).iter().any(|c| c.id == self.id)
    }
}

impl Tip {
    fn join(&mut self, others: &[(Handle, EdgeData)]) {
        for other in others {
            if !self.behind.iter().any(|(node, _)| *node == other.0) {
                self.behind.push(*other);
            }
        }
    }
}

fn all(soft: &Soft) -> Vec<Arc<Capture>> {
    if soft.n_captures.load(Ordering::Acquire) == 0 {
        return Vec::new();
    }
    lock(&soft.captures).clone()
}

/// The capture that a stream takes part in. The legacy stream takes part in none, and must not be
/// used while a stream that it waits for is captured.
fn of(soft: &Soft, context: &Context, stream: &Stream) -> Result<Option<Arc<Capture>>, CuError> {
    let captures = all(soft);
    if stream.handle != context.null_stream.handle {
        return Ok(captures.into_iter().find(|c| c.takes(stream.handle)));
    }
    match captures.iter().find(|c| waits_for(soft, context, c)) {
        Some(_) => Err(CuError::STREAM_CAPTURE_IMPLICIT),
        None => Ok(None),
    }
}

/// A stream of this capture is one that the context's legacy stream waits for.
fn waits_for(soft: &Soft, context: &Context, capture: &Capture) -> bool {
    /// `CU_STREAM_NON_BLOCKING`
    const NON_BLOCKING: u32 = 1;
    let streams: Vec<Handle> = lock(&capture.state).tips.keys().copied().collect();
    streams
        .iter()
        .filter_map(|stream| soft.streams.get(*stream))
        .any(|s| s.context == context.handle && s.flags & NON_BLOCKING == 0)
}

/// As [`of`] for work, which spoils the captures that it would make the legacy stream wait for.
fn of_work(
    soft: &Soft,
    context: &Context,
    stream: &Stream,
) -> Result<Option<Arc<Capture>>, CuError> {
    of(soft, context, stream).inspect_err(|_| {
        for capture in all(soft).iter().filter(|c| waits_for(soft, context, c)) {
            capture.spoil();
        }
    })
}

/// Makes an operation a node if its stream is captured.
pub(crate) fn take(
    soft: &Soft,
    context: &Context,
    stream: &Stream,
    operation: &Operation,
) -> Result<bool, CuError> {
    let Some(capture) = of_work(soft, context, stream)? else {
        return Ok(false);
    };
    let mut state = lock(&capture.state);
    if state.spoiled {
        return Err(CuError::STREAM_CAPTURE_INVALIDATED);
    }
    let tip = state.tips.entry(stream.handle).or_default();
    let node = capture.graph.add(soft, operation.clone(), &tip.behind)?;
    tip.behind = vec![(node, EdgeData::default())];
    Ok(true)
}

/// A call that has nothing to do in a captured stream: it fails there, and spoils the capture.
pub(crate) fn refuse(soft: &Soft, context: &Context, stream: &Stream) -> CuResult {
    match of_work(soft, context, stream)? {
        Some(capture) => {
            capture.spoil();
            Err(CuError::STREAM_CAPTURE_UNSUPPORTED)
        }
        None => Ok(()),
    }
}

/// To wait for a context has nothing to do while a stream of it is captured, whatever the thread's
/// mode is.
pub(crate) fn refuse_context(soft: &Soft, context: &Context) -> CuResult {
    let captures = all(soft);
    let of = captures.iter().filter(|c| c.context == context.handle);
    let mut of = of.peekable();
    if of.peek().is_none() {
        return Ok(());
    }
    of.for_each(|capture| capture.spoil());
    Err(CuError::STREAM_CAPTURE_UNSUPPORTED)
}

/// A call that a graph would not repeat, in whatever stream: the thread's mode says whether it may
/// be made meanwhile.
pub(crate) fn unsafe_call(soft: &Soft) -> CuResult {
    let mode = MODE.get();
    if mode == RELAXED {
        return Ok(());
    }
    let here = thread_number();
    let forbids = |capture: &&Arc<Capture>| {
        (capture.thread == here && capture.mode != RELAXED)
            || (mode == GLOBAL && capture.mode == GLOBAL)
    };
    let captures = all(soft);
    let mut forbidding = captures.iter().filter(forbids).peekable();
    if forbidding.peek().is_none() {
        return Ok(());
    }
    forbidding.for_each(|capture| capture.spoil());
    Err(CuError::STREAM_CAPTURE_UNSUPPORTED)
}

/// An event that was last recorded in a capture tells nothing of time.
pub(crate) fn not_captured(event: &Event) -> CuResult {
    match &*lock(&event.captured) {
        Some(captured) => {
            captured.capture.spoil();
            Err(CuError::CAPTURED_EVENT)
        }
        None => Ok(()),
    }
}

/// Records an event, if the stream is captured; an external one is a node.
pub(crate) fn record(
    soft: &Soft,
    context: &Context,
    stream: &Stream,
    event: &Arc<Event>,
    external: bool,
) -> Result<bool, CuError> {
    if external {
        let node = Operation::Record(Arc::clone(event));
        return match of_work(soft, context, stream)? {
            Some(_) => take(soft, context, stream, &node),
            None => Err(CuError::INVALID_VALUE),
        };
    }
    let Some(capture) = of_work(soft, context, stream)? else {
        *lock(&event.captured) = None;
        return Ok(false);
    };
    let state = lock(&capture.state);
    if state.spoiled {
        return Err(CuError::STREAM_CAPTURE_INVALIDATED);
    }
    let behind = state.tips.get(&stream.handle).map(|tip| tip.behind.clone());
    drop(state);
    *lock(&event.captured) = Some(Captured {
        capture,
        behind: behind.unwrap_or_default(),
    });
    Ok(true)
}

/// Has a stream wait for an event, if one of them belongs to a capture: so streams join.
pub(crate) fn wait(
    soft: &Soft,
    context: &Context,
    stream: &Stream,
    event: &Arc<Event>,
    external: bool,
) -> Result<bool, CuError> {
    let own = of_work(soft, context, stream)?;
    if external {
        return match own {
            Some(_) => take(soft, context, stream, &Operation::Wait(Arc::clone(event))),
            None => Err(CuError::INVALID_VALUE),
        };
    }
    let recorded = lock(&event.captured).clone();
    let (own, recorded) = match (own, recorded) {
        (None, None) => return Ok(false),
        (Some(capture), None) => {
            capture.spoil();
            return Err(CuError::STREAM_CAPTURE_ISOLATION);
        }
        (own, Some(recorded)) => (own, recorded),
    };
    let capture = &recorded.capture;
    if capture.is_over(soft) {
        return Err(CuError::CAPTURED_EVENT);
    }
    if stream.handle == context.null_stream.handle {
        capture.spoil();
        return Err(CuError::STREAM_CAPTURE_IMPLICIT);
    }
    if let Some(own) = own.filter(|own| own.id != capture.id) {
        own.spoil();
        capture.spoil();
        return Err(CuError::STREAM_CAPTURE_MERGE);
    }
    let mut state = lock(&capture.state);
    if state.spoiled {
        return Err(CuError::STREAM_CAPTURE_INVALIDATED);
    }
    let tip = state.tips.entry(stream.handle).or_default();
    tip.join(&recorded.behind);
    Ok(true)
}

fn begin_with(
    stream: Handle,
    mode: c_int,
    into: Option<Arc<Graph>>,
    behind: Vec<(Handle, EdgeData)>,
) -> CuResult {
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    let (soft, context, stream) = known(stream)?;
    if !(GLOBAL..=RELAXED).contains(&mode) {
        return Err(CuError::INVALID_VALUE);
    }
    if stream.handle == context.null_stream.handle {
        return Err(CuError::STREAM_CAPTURE_UNSUPPORTED);
    }
    if of(soft, &context, &stream)?.is_some() {
        return Err(CuError::ILLEGAL_STATE);
    }
    let tip = Tip {
        behind,
        ..Tip::default()
    };
    let given = into.is_some();
    let capture = Arc::new(Capture {
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        graph: into.unwrap_or_else(|| Graph::new(soft, false)),
        given,
        origin: stream.handle,
        context: stream.context,
        mode,
        thread: thread_number(),
        state: Mutex::new(CaptureState {
            spoiled: false,
            tips: HashMap::from([(stream.handle, tip)]),
        }),
    });
    lock(&soft.captures).push(capture);
    soft.n_captures.fetch_add(1, Ordering::AcqRel);
    Ok(())
}

pub(crate) unsafe fn begin(stream: Handle, mode: c_int) -> CuResult {
    begin_with(stream, mode, None, Vec::new())
}

pub(crate) unsafe fn begin_to_graph(
    stream: Handle,
    into: Handle,
    nodes: *const Handle,
    data: *const EdgeData,
    count: usize,
    mode: c_int,
) -> CuResult {
    let into = graph(into)?;
    // SAFETY: the caller's arrays.
    let behind = unsafe { behind(nodes, data, count)? };
    begin_with(stream, mode, Some(into), behind)
}

fn over(soft: &Soft, capture: &Capture) {
    lock(&soft.captures).retain(|c| c.id != capture.id);
    soft.n_captures.fetch_sub(1, Ordering::AcqRel);
}

/// The captures of a context end with it.
pub(crate) fn forget_context(soft: &Soft, context: Handle) {
    for capture in all(soft).iter().filter(|c| c.context == context) {
        over(soft, capture);
    }
}

/// A capture ends with the stream that it began in.
pub(crate) fn forget_stream(soft: &Soft, stream: Handle) {
    for capture in all(soft).iter().filter(|c| c.origin == stream) {
        over(soft, capture);
    }
}

pub(crate) unsafe fn end(stream: Handle, to: *mut Handle) -> CuResult {
    let (soft, context, stream) = known(stream)?;
    // SAFETY: the caller's pointer.
    unsafe { put_if(to, 0) };
    let capture = of(soft, &context, &stream)?.ok_or(CuError::ILLEGAL_STATE)?;
    if capture.origin != stream.handle {
        capture.spoil();
        return Err(CuError::STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != RELAXED && capture.thread != thread_number() {
        return Err(CuError::STREAM_CAPTURE_WRONG_THREAD);
    }
    over(soft, &capture);
    let state = lock(&capture.state);
    let nodes = |tip: &Tip| tip.behind.iter().map(|(node, _)| *node).collect::<Vec<_>>();
    let own = state
        .tips
        .get(&stream.handle)
        .map(nodes)
        .unwrap_or_default();
    let joined = |tip: &Tip| capture.graph.reach(&own, &nodes(tip));
    let result = if state.spoiled {
        Err(CuError::STREAM_CAPTURE_INVALIDATED)
    } else if !state.tips.values().all(joined) {
        Err(CuError::STREAM_CAPTURE_UNJOINED)
    } else {
        // SAFETY: the caller's pointer.
        unsafe { put(to, capture.graph.handle) }
    };
    if result.is_err() && !capture.given {
        capture.graph.forget(soft);
    }
    result
}

fn status(stream: Handle) -> Result<(c_int, Option<Arc<Capture>>, Handle), CuError> {
    let (soft, context, stream) = known(stream)?;
    Ok(match of(soft, &context, &stream)? {
        Some(capture) if lock(&capture.state).spoiled => (INVALIDATED, None, stream.handle),
        Some(capture) => (ACTIVE, Some(capture), stream.handle),
        None => (NOT_CAPTURING, None, stream.handle),
    })
}

pub(crate) unsafe fn is_capturing(stream: Handle, to: *mut c_int) -> CuResult {
    // SAFETY: the caller's pointer.
    unsafe { put(to, status(stream)?.0) }
}

pub(crate) unsafe fn info_v3(
    stream: Handle,
    to: *mut c_int,
    id: *mut u64,
    graph: *mut Handle,
    nodes: *mut *const Handle,
    data: *mut *const EdgeData,
    count: *mut usize,
) -> CuResult {
    let (status, capture, stream) = status(stream)?;
    // SAFETY: the caller's pointers. Without a capture the others are not written.
    unsafe {
        put(to, status)?;
        let Some(capture) = capture else {
            return Ok(());
        };
        put_if(id, capture.id);
        put_if(graph, capture.graph.handle);
        let mut state = lock(&capture.state);
        let tip = state.tips.entry(stream).or_default();
        if !nodes.is_null() || !data.is_null() {
            let (nodes, data): (Vec<_>, Vec<_>) = tip.behind.iter().copied().unzip();
            tip.shown = (nodes.into(), data.into());
        }
        put_if(nodes, tip.shown.0.as_ptr());
        put_if(data, tip.shown.1.as_ptr());
        put_if(count, tip.behind.len());
    }
    Ok(())
}

pub(crate) unsafe fn info_v2(
    stream: Handle,
    to: *mut c_int,
    id: *mut u64,
    graph: *mut Handle,
    nodes: *mut *const Handle,
    count: *mut usize,
) -> CuResult {
    // SAFETY: the caller's pointers.
    unsafe { info_v3(stream, to, id, graph, nodes, std::ptr::null_mut(), count) }
}

pub(crate) unsafe fn info_v1(stream: Handle, to: *mut c_int, id: *mut u64) -> CuResult {
    use std::ptr::null_mut;
    // SAFETY: the caller's pointers.
    unsafe {
        info_v3(
            stream,
            to,
            id,
            null_mut(),
            null_mut(),
            null_mut(),
            null_mut(),
        )
    }
}

pub(crate) unsafe fn update_v2(
    stream: Handle,
    nodes: *const Handle,
    data: *const EdgeData,
    count: usize,
    flags: u32,
) -> CuResult {
    let (status, capture, stream) = status(stream)?;
    let capture = match (status, capture) {
        (_, Some(capture)) => capture,
        (INVALIDATED, None) => return Err(CuError::STREAM_CAPTURE_INVALIDATED),
        (_, None) => return Err(CuError::ILLEGAL_STATE),
    };
    // SAFETY: the caller's arrays.
    let new = unsafe { behind(nodes, data, count)? };
    let own = capture.graph.nodes();
    if flags > REPLACE || !new.iter().all(|(node, _)| own.contains(node)) {
        return Err(CuError::INVALID_VALUE);
    }
    let mut state = lock(&capture.state);
    let tip = state.tips.entry(stream).or_default();
    if flags == REPLACE {
        tip.behind.clear();
    }
    tip.join(&new);
    Ok(())
}

pub(crate) unsafe fn update_v1(
    stream: Handle,
    nodes: *const Handle,
    count: usize,
    flags: u32,
) -> CuResult {
    // SAFETY: the caller's arrays.
    unsafe { update_v2(stream, nodes, std::ptr::null(), count, flags) }
}

pub(crate) unsafe fn exchange_mode(mode: *mut c_int) -> CuResult {
    if mode.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null, and valid by the caller's promise.
    let new = unsafe { *mode };
    if !(GLOBAL..=RELAXED).contains(&new) {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: as above.
    unsafe { put(mode, MODE.replace(new)) }
}

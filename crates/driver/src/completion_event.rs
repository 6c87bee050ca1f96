//! A completion event behind all work of a context: it says when that has ended, and nobody is held
//! up.

use std::ptr;

use crate::handles::Context;
use crate::result::DriverError;
use crate::safe::Driver;
use crate::sys::{self, CUevent};

/// An event that is put behind what is in all streams of a context. It stays until it is given
/// back, or its context ends.
#[derive(Debug)]
pub struct CompletionEvent(CUevent);

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Send for CompletionEvent {}
// SAFETY: as above, by several at once.
unsafe impl Sync for CompletionEvent {}

impl Driver {
    /// Makes one for the current context. The driver waits for room where too much was launched
    /// there, so this is done ahead.
    pub fn new_completion_event(&self) -> Result<CompletionEvent, DriverError> {
        let mut event = ptr::null_mut();
        // SAFETY: a writable local.
        let code = unsafe { (self.api.event_create)(&mut event, sys::EVENT_DISABLE_TIMING) };
        self.check("cuEventCreate", code, String::new)
            .map(|()| CompletionEvent(event))
    }

    /// Puts it behind all that is in its context, and waits for nothing; false if the driver has no
    /// such function (`cuCtxRecordEvent` came with CUDA 12.5). Streams that no other thread can
    /// name are covered. As a wait for the context would, it spoils captures in it: there may be
    /// none.
    pub fn record_completion(
        &self,
        context: Context,
        event: &CompletionEvent,
    ) -> Result<bool, DriverError> {
        // SAFETY: an event of ours, of this context, which is alive.
        match unsafe { (self.api.ctx_record_event)(context.0, event.0) } {
            sys::NOT_SUPPORTED => Ok(false),
            code => self
                .check("cuCtxRecordEvent", code, String::new)
                .map(|()| true),
        }
    }

    /// Whether all that has ended which was there when it was put in place last.
    pub fn has_passed(&self, event: &CompletionEvent) -> Result<bool, DriverError> {
        // SAFETY: an event of ours, whose context is alive.
        match unsafe { (self.api.event_query)(event.0) } {
            sys::NOT_READY => Ok(false),
            code => self.check("cuEventQuery", code, String::new).map(|()| true),
        }
    }

    /// Gives it back. It costs its memory if it stays.
    pub fn forget(&self, event: CompletionEvent) {
        // SAFETY: an event of ours that nobody else knows.
        unsafe { (self.api.event_destroy)(event.0) };
    }
}

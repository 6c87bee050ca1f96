//! A mark behind all work of a context: it says when that has ended, and nobody is held up.

use std::ptr;

use crate::result::DriverError;
use crate::safe::{Context, Driver};
use crate::sys::{self, CUevent};

/// An event behind what was in all streams of a context when it was made. It stays until it is given back, or its context ends.
#[derive(Debug)]
pub struct Mark(CUevent);

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Send for Mark {}

impl Driver {
    /// Makes one for the current context, which is `context`, by `cuCtxRecordEvent`; `None` if the driver has no such function (it came with CUDA
    /// 12.5). It covers streams that no other thread can name. As a wait for the context would, it spoils captures in it: there may be none.
    pub fn mark(&self, context: Context) -> Result<Option<Mark>, DriverError> {
        let mut event = ptr::null_mut();
        // SAFETY: a writable local.
        let code = unsafe { (self.api.event_create)(&mut event, sys::EVENT_DISABLE_TIMING) };
        self.check("cuEventCreate", code, String::new)?;
        let mark = Mark(event);
        // SAFETY: an event of this context.
        let code = unsafe { (self.api.ctx_record_event)(context.0, event) };
        if code == sys::SUCCESS {
            return Ok(Some(mark));
        }
        self.forget(mark);
        match code {
            sys::NOT_SUPPORTED => Ok(None),
            _ => (self.check("cuCtxRecordEvent", code, String::new)).map(|()| None),
        }
    }

    /// Whether all that has ended.
    pub fn has_passed(&self, mark: &Mark) -> Result<bool, DriverError> {
        // SAFETY: an event of ours, whose context is alive.
        match unsafe { (self.api.event_query)(mark.0) } {
            sys::NOT_READY => Ok(false),
            code => self.check("cuEventQuery", code, String::new).map(|()| true),
        }
    }

    /// Gives it back. It costs its memory if it stays.
    pub fn forget(&self, mark: Mark) {
        // SAFETY: an event of ours that nobody else knows.
        unsafe { (self.api.event_destroy)(mark.0) };
    }
}

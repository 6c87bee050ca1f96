//! Calls that wait for every kernel that runs in the context, and let nobody launch meanwhile: a module load, and what gives memory back
//! (docs/measurements.md has which). An unload does so where another such call stands behind it.
//!
//! An application that makes such a call itself has to know that nothing it launches waits for what it launches later. Of calls of ours beside
//! it nobody knows, so who makes them may say when: a *window* in which nothing runs.

use crate::result::DriverError;
use crate::safe::Driver;
use crate::sys;

/// When such calls are made.
#[derive(Clone, Copy)]
pub struct Window {
    /// Does the work when it harms nobody; false if there was no such moment, and then it was not done.
    pub open: fn(&mut dyn FnMut()) -> bool,
    /// The calling thread has to wait for one; others call at once.
    pub is_needed: fn() -> bool,
}

impl Driver {
    /// The same driver, whose calls of this kind are made when the window says.
    pub fn with_window(self, window: Window) -> Driver {
        Driver {
            window: Some(window),
            ..self
        }
    }

    /// The calling thread works beside an application. What takes long in a load is compilation, and the linker does that without holding anybody up.
    pub fn works_beside(&self) -> bool {
        self.window.is_some_and(|window| (window.is_needed)())
    }

    /// `work`, which makes such calls, as one of them.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_READY` where the window had no moment for it: nothing was called.
    pub fn while_nothing_runs<T>(
        &self,
        call: &'static str,
        work: impl FnOnce() -> T,
    ) -> Result<T, DriverError> {
        let Some(window) = self.window.filter(|window| (window.is_needed)()) else {
            return Ok(work());
        };
        let (mut work, mut done) = (Some(work), None);
        let mut once = || done = work.take().map(|work| work());
        (window.open)(&mut once);
        done.ok_or_else(|| DriverError {
            call,
            code: sys::NOT_READY,
            name: self.error_name(sys::NOT_READY),
            detail: "it waits for all kernels that run and lets none begin meanwhile, and kernels ran all the while".into(),
        })
    }
}

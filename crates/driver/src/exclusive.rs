//! Calls that wait for every kernel that runs in the context, and let nobody launch meanwhile: a module load, and what gives memory back
//! (docs/measurements.md has which). An unload does so where another such call stands behind it.
//!
//! An application that makes such a call itself has to know that nothing it launches waits for what it launches later. Of calls of ours beside
//! it nobody knows, so who makes them may say when: an *exclusive section*, in which nothing runs.

use crate::result::DriverError;
use crate::safe::Driver;
use crate::sys;

/// When such calls are made.
#[derive(Clone, Copy)]
pub struct ExclusiveSection {
    /// Does the work when it harms nobody; false if there was no such moment, and then it was not done.
    pub open: fn(&mut dyn FnMut()) -> bool,
    /// The calling thread has to wait for one; others call at once.
    pub is_needed: fn() -> bool,
}

impl Driver {
    /// The same driver, whose calls of this kind are made when the section says.
    pub fn with_exclusive_sections(self, section: ExclusiveSection) -> Driver {
        Driver {
            exclusive: Some(section),
            ..self
        }
    }

    /// The calling thread works beside an application. What takes long in a load is compilation, and the linker does that without holding anybody up.
    pub fn works_in_background(&self) -> bool {
        self.exclusive.is_some_and(|section| (section.is_needed)())
    }

    /// `work`, which makes such calls, as one of them.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_READY` where the section had no moment for it: nothing was called.
    pub fn while_nothing_runs<T>(
        &self,
        call: &'static str,
        work: impl FnOnce() -> T,
    ) -> Result<T, DriverError> {
        let Some(section) = self.exclusive.filter(|section| (section.is_needed)()) else {
            return Ok(work());
        };
        let (mut work, mut done) = (Some(work), None);
        let mut once = || done = work.take().map(|work| work());
        (section.open)(&mut once);
        done.ok_or_else(|| DriverError {
            call,
            code: sys::NOT_READY,
            name: self.error_name(sys::NOT_READY),
            detail: "it waits for all kernels that run and lets none begin meanwhile, and kernels ran all the while".into(),
        })
    }
}

//! Calls that wait for every kernel that runs in the context, and let nobody launch meanwhile: a
//! module load, and what gives memory back (docs/measurements.md has which). An unload does so
//! where another such call stands behind it.
//!
//! An application that makes such a call itself has to know that nothing it launches waits for what
//! it launches later. Of calls of ours beside it nobody knows, so who makes them may say when: an
//! *exclusive section*, in which nothing runs.

/// When such calls are made.
#[derive(Clone, Copy)]
pub struct ExclusiveSection {
    /// Does the work when it harms nobody; false if there was no such moment, and then it was not
    /// done.
    pub open: fn(&mut dyn FnMut()) -> bool,
    /// The calling thread has to wait for one; others call at once.
    pub is_needed: fn() -> bool,
}

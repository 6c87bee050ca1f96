//! Where the driver is that is hooked.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The function that says where the driver is.
pub(crate) const ANCHOR: &str = "cuLaunchKernel";

/// Where it is; 0 if that is not known.
static DRIVER_AT: AtomicUsize = AtomicUsize::new(0);

/// Where the driver's function [`ANCHOR`] is; 0 if there is none.
pub(crate) fn driver_at() -> usize {
    DRIVER_AT.load(Ordering::Relaxed)
}

/// It is there.
pub(crate) fn set_driver_at(address: usize) {
    DRIVER_AT.store(address, Ordering::Relaxed);
}

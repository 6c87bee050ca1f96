//! What the modules of a device share.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::image::object::Registry;
use crate::memory::Memory;

/// What the modules of a device share.
pub(crate) struct Device {
    pub memory: Arc<Memory>,
    /// Addresses that device `malloc` returned.
    pub heap: Mutex<HashSet<u64>>,
    pub modules: AtomicU32,
    pub images: Registry,
}

impl Device {
    /// The next module's number: part of its functions' addresses.
    pub(crate) fn next_module_id(&self) -> u32 {
        self.modules.fetch_add(1, Ordering::Relaxed)
    }
}

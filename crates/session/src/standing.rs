//! Whether the application's module is still loaded, while a thread of ours makes variants of its kernels.
//!
//! The application may unload an image at any time. What asks the driver about its kernels holds that up for the moment that it
//! takes; what takes long, such as a compilation, does not.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module.
#[derive(Debug)]
pub struct Standing(Mutex<bool>);

impl Default for Standing {
    fn default() -> Standing {
        Standing(Mutex::new(true))
    }
}

impl Standing {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` if the module is loaded, which it stays meanwhile.
    pub fn while_loaded<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let loaded = self.lock();
        loaded.then(work)
    }

    /// The module is about to be unloaded, or was not after all.
    pub fn set(&self, loaded: bool) {
        *self.lock() = loaded;
    }
}

//! Whether the application's module is still loaded, while a thread of ours makes variants of its
//! kernels.
//!
//! The application may unload an image at any time. What asks the driver about its kernels holds
//! that up for the moment that it takes; what takes long, such as a compilation, does not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// See the module.
#[derive(Debug)]
pub struct Standing {
    loaded: AtomicBool,
    /// Held by who asks the driver about it.
    asked: Mutex<()>,
}

impl Default for Standing {
    fn default() -> Standing {
        Standing {
            loaded: AtomicBool::new(true),
            asked: Mutex::default(),
        }
    }
}

impl Standing {
    /// Runs `work` if the module is loaded, which it stays meanwhile.
    pub fn while_loaded<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let _asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_loaded().then(work)
    }

    /// The module is loaded, and may be unloaded by the next instruction.
    pub fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::SeqCst)
    }

    /// The module is about to be unloaded, or was not after all. Nobody is in
    /// [`Standing::while_loaded`] any more who saw it as it was.
    pub fn set(&self, loaded: bool) {
        self.loaded.store(loaded, Ordering::SeqCst);
        drop(self.asked.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

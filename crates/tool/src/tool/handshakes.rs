//! Threads with a handshake each: so many at once.

use std::sync::Mutex;
use std::thread::JoinHandle;

use crate::lock::lock;

/// Handshakes at once; others wait until one of them is done.
pub(crate) const MOST: usize = 32;

/// Threads with a handshake each.
#[derive(Debug, Default)]
pub(crate) struct Handshakes(pub(crate) Mutex<Vec<JoinHandle<()>>>);

impl Handshakes {
    /// There is one.
    pub(crate) fn are_there(&self) -> bool {
        let mut all = lock(&self.0);
        // A panic of a thread was told already.
        all.retain(|handshake| !handshake.is_finished());
        !all.is_empty()
    }

    /// There is room for one more.
    pub(crate) fn have_room(&self) -> bool {
        !self.are_there() || lock(&self.0).len() < MOST
    }

    /// Waits until all are done.
    pub(crate) fn join(&self) {
        for handshake in std::mem::take(&mut *lock(&self.0)) {
            // As above.
            let _ = handshake.join();
        }
    }
}

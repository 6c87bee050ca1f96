//! Waits until something is so.

use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_micros(500);

/// Waits until `done` says so. False: not within `limit`.
pub fn wait(limit: Duration, done: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if done() {
            return true;
        }
        if begun.elapsed() > limit {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}

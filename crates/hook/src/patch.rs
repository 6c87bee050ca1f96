//! Changes of code: what stands there and what is to stand there, and those that are in force.

use std::sync::{Mutex, MutexGuard, PoisonError};

use warpbpf_wire::late;

/// Most bytes of one stub and trampoline; displaced instructions grow when they are relocated.
pub(crate) const ROOM: usize = 256;

#[derive(Debug, Clone)]
pub(crate) struct Patch {
    pub(crate) at: usize,
    pub(crate) expected: Vec<u8>,
    pub(crate) jump: Vec<u8>,
}

/// Changes of code that were made, for whoever takes them back.
static IN_FORCE: Mutex<Vec<late::Patch>> = Mutex::new(Vec::new());

/// The changes that are in force.
pub fn in_force() -> MutexGuard<'static, Vec<late::Patch>> {
    IN_FORCE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Patch {
    pub(crate) fn told(&self) -> Option<late::Patch> {
        late::Patch::new(self.at as u64, &self.expected, &self.jump)
    }
}

//! Launches by kernels (CUDA Dynamic Parallelism, version 2). A kernel that is launched from the
//! device begins when the grid that launched it has ended, in the order of the launches, and the
//! launching grid counts as running until it has: that is one of the orders that CUDA allows, since
//! a grid cannot wait for what it launches.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// A kernel that a grid launches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Child {
    /// Module function number.
    pub function: u32,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    /// Address of its parameters.
    pub params: u64,
}

/// What a grid has launched, and what it has room for parameters for.
#[derive(Default)]
pub(crate) struct Children {
    pub(crate) prepared: Mutex<HashMap<u64, Child>>,
    pub(crate) launched: Mutex<Vec<Child>>,
}

impl Children {
    /// What was launched, in that order; room for parameters that nobody used.
    pub(crate) fn take(&self) -> (Vec<Child>, Vec<u64>) {
        let prepared = std::mem::take(&mut *lock(&self.prepared));
        (
            std::mem::take(&mut *lock(&self.launched)),
            prepared.into_keys().collect(),
        )
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

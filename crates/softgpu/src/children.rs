//! Launches by kernels (CUDA Dynamic Parallelism, version 2). A kernel that is launched from the
//! device begins when the grid that launched it has ended, in the order of the launches, and the
//! launching grid counts as running until it has: that is one of the orders that CUDA allows, since
//! a grid cannot wait for what it launches.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::sched::Worker;
use crate::windows;

/// `cudaErrorInvalidValue`, `cudaErrorInvalidConfiguration`
const INVALID_VALUE: u32 = 1;
const INVALID_CONFIGURATION: u32 = 9;

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
    prepared: Mutex<HashMap<u64, Child>>,
    launched: Mutex<Vec<Child>>,
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

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Worker<'_> {
    /// Address of room for the parameters of a kernel, 0 if there is none or no such kernel.
    pub(crate) fn parameter_buffer(
        &self,
        function: u64,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
    ) -> u64 {
        let index = windows::function_at(function)
            .filter(|&(module, _)| module == self.run.module_id)
            .map(|(_, index)| index);
        let Some((function, kernel)) =
            index.and_then(|index| Some((index, self.run.kernel.sibling(index)?)))
        else {
            return 0;
        };
        let bytes = kernel.param_bytes().max(1) as u64;
        let Some(params) = self.run.memory.alloc(bytes) else {
            return 0;
        };
        let child = Child {
            function,
            grid,
            block,
            shared,
            params,
        };
        lock(&self.run.children.prepared).insert(params, child);
        params
    }

    /// Launches what room was made for; the runtime's error, or 0.
    pub(crate) fn launch_device(&self, params: u64) -> u32 {
        let Some(child) = lock(&self.run.children.prepared).remove(&params) else {
            return INVALID_VALUE;
        };
        let kernel = self.run.kernel.sibling(child.function);
        let possible = kernel.is_some_and(|kernel| {
            crate::check_geometry(&kernel, child.grid, child.block, [1; 3]).is_ok()
        });
        if !possible {
            let _ = self.run.memory.free(params);
            return INVALID_CONFIGURATION;
        }
        lock(&self.run.children.launched).push(child);
        0
    }
}

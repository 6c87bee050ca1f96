//! Launches by kernels: what kernels call of the device runtime for them.

use crate::children::{Child, lock};
use crate::windows;
use crate::worker::Worker;

/// `cudaErrorInvalidValue`, `cudaErrorInvalidConfiguration`
const INVALID_VALUE: u32 = 1;
const INVALID_CONFIGURATION: u32 = 9;

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
            crate::launch::check_geometry(&kernel, child.grid, child.block, [1; 3]).is_ok()
        });
        if !possible {
            let _ = self.run.memory.free(params);
            return INVALID_CONFIGURATION;
        }
        lock(&self.run.children.launched).push(child);
        0
    }
}

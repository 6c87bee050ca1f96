//! Driver failures that name the call.

use std::fmt;

use crate::sys::CUresult;

/// A driver call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverError {
    /// The function, e.g. `cuModuleLoadDataEx`.
    pub call: &'static str,
    /// Its `CUresult`.
    pub code: CUresult,
    /// The driver's name of the code, e.g. `CUDA_ERROR_INVALID_PTX`.
    pub name: String,
    /// What the call was about, and the JIT's own log where there is one.
    pub detail: String,
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` failed with {} ({})",
            self.call, self.name, self.code
        )?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail.trim_end())?;
        }
        Ok(())
    }
}

impl std::error::Error for DriverError {}

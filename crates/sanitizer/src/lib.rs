//! The seam to Compute Sanitizer's patching API, which puts calls of our functions into machine
//! code that we do not read ourselves.
//!
//! Nothing links its library: the user has it with the CUDA toolkit or from PyPI, and it may not be
//! passed on. It is loaded into the application, where it takes part in the driver's start, so it
//! must be there before the first context is. What is patched are modules that were loaded for it;
//! it patches a module as a whole, so functions of ours are also called where nobody asked for
//! them, and then find that their argument is 0.

pub mod sys;

mod patch;
mod result;

pub use patch::{Patch, Sanitizer};
pub use result::SanitizerError;

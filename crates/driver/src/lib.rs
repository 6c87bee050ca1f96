//! The one seam to a CUDA driver, real or soft: the raw table, typed results, and a small safe
//! layer.
//!
//! Nothing links `libcuda`: the table is filled by a resolver, so that tools can `dlopen` a driver,
//! and the agent can put its own trampolines in place of entry points that it hooks. The soft GPU
//! stands behind the same table, because it is a `libcuda.so.1` too.

pub mod front;
pub mod jit;
pub mod loaded;
pub mod own_memory;
pub mod sys;

mod completion_event;
mod exclusive;
#[cfg(debug_assertions)]
mod faults;
mod fixed;
mod handles;
mod library;
mod link;
mod load;
mod result;
mod safe;
mod tensor;
mod wait;

pub use completion_event::CompletionEvent;
pub use exclusive::ExclusiveSection;
pub use handles::{Context, Function, Library, Module, Stream};
pub use jit::JitOptions;
pub use load::{LoadError, open};
pub use result::DriverError;
pub use safe::{DeviceInfo, Driver};
pub use tensor::{TENSOR_MAP_WORDS, TensorShape};

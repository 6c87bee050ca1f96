//! Kernels, what runs in their place, and what is counted of them.

pub(crate) mod clients;
pub(crate) mod entry;
pub(crate) mod fallback;
pub(crate) mod generation;
pub(crate) mod kernel_registry;
pub(crate) mod launches;
pub(crate) mod notes;
pub(crate) mod outbox;
pub(crate) mod replacement;
pub(crate) mod shape;
pub(crate) mod stream_name;

//! What the tool's descriptors stand for, each by itself: they know each other by their places in
//! the kernel's tables only.

pub mod handle;

pub mod btf;
pub mod link;
pub mod map;
pub mod perf;
pub mod prog;

pub mod contents;
pub mod extra_cpus;
pub(crate) mod proved;
pub mod shadow;
pub mod sink;
pub(crate) mod walk;

pub mod session;

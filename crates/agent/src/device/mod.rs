//! What there is in contexts, and what is known of streams, memory, captures and graphs.

pub(crate) mod background;
pub(crate) mod bound;
pub(crate) mod calls;
pub(crate) mod context_registry;
pub(crate) mod drain;
pub(crate) mod drivers;
pub(crate) mod end_requests;
pub(crate) mod graphs;
pub(crate) mod host_ops;
pub(crate) mod launch_barrier;
pub(crate) mod left;
pub(crate) mod memory;
pub(crate) mod pump;
pub(crate) mod quiet;
pub(crate) mod retains;
pub(crate) mod spread;
pub(crate) mod streams;
pub(crate) mod watchdog;

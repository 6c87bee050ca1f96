//! What the agent needs of the system: locks, threads, stacks, descriptors, symbols, and the
//! driver's own functions.

pub(crate) mod anchor;
pub(crate) mod arena;
pub(crate) mod descriptors;
pub(crate) mod guard;
pub(crate) mod hook_table;
pub(crate) mod list;
pub(crate) mod lock;
pub(crate) mod original;
pub(crate) mod params;
pub(crate) mod stack;
pub(crate) mod symbols;
pub(crate) mod table;
pub(crate) mod thread;
pub(crate) mod wanted;

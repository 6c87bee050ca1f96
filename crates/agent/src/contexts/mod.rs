//! What is done in contexts beside the application: loads, waits, maps that grow or are made anew.

pub(crate) mod compaction;
pub(crate) mod drain_wait;
pub(crate) mod exclusive;
pub(crate) mod growth;
pub(crate) mod launch_memory;
pub(crate) mod memory_table;
pub(crate) mod sanitizer;

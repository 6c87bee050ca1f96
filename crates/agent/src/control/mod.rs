//! The thread that speaks with the tool.

pub(crate) mod code_cache;
pub(crate) mod control_thread;
pub(crate) mod ends;
pub(crate) mod handshake;
pub(crate) mod poll_interval;
pub(crate) mod signs;

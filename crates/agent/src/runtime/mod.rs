//! The agent of a process, which owns all parts below.

pub(crate) mod agent;
pub(crate) mod published;

//! The agent and what it does for a tool, on the soft GPU that this program carries.

mod common;
mod host_ops;
mod soft;

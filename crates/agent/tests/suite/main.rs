//! The agent and what it does for a tool, on the soft GPU that this program carries.

#![allow(
    clippy::disallowed_methods,
    reason = "the test's own files, which nobody closes"
)]

mod common;
mod host_ops;
mod soft;

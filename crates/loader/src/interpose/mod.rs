//! In front of libc: the symbols that the tool finds here, and what this process has for them.

pub mod guard;
pub mod real;
pub mod tell;

pub mod marks;
pub mod polling;
pub mod variables;

pub mod global;
pub mod starter;

pub mod launches;
pub mod remote;
pub mod remote_kernel;

pub mod moments;

mod bpftime;
pub mod files;
pub mod libbpf_handler;

// In a test's executable these symbols would stand in front of its own libc.
#[cfg(not(test))]
mod context;
#[cfg(not(test))]
mod hooks;
#[cfg(not(test))]
mod passed;
#[cfg(not(test))]
mod waits;

//! Tests of the injector with real processes.

#![expect(
    clippy::print_stderr,
    reason = "where processes may not be traced, that is said"
)]

mod killed;
mod running;
mod target;

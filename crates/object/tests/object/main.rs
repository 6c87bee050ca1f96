//! Tests of the loader on what clang really writes.

mod common;
mod load;
mod refuse;
mod types;

//! Tests of the loader on what clang really writes.

mod assemble;
mod common;
mod core;
mod hide;
mod ksyms;
mod linking;
mod load;
mod refuse;
mod settings;
mod types;

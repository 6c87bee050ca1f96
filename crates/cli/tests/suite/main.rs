//! The `warpbpf` command as scripts and people see it: what it prints, and its exit status.

mod common;
mod generate;

mod answers;
mod listing;
mod streams;

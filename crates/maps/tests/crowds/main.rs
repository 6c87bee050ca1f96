//! Random operations of many lanes under random schedules, on the soft GPU, and what the host's side of this crate then finds in the map: every kind
//! of map that has a promise beyond its key's order, which `crates/codegen/tests/history.rs` looks at. And the same operations of one lane, which must
//! say at every step what a model says.

mod alone;
mod arrays;
#[path = "../../../codegen/tests/common/mod.rs"]
mod common;
mod events;
mod feed;
mod filter;
mod inner;
mod tables;
mod work;

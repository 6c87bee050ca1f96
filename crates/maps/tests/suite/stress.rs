//! Random operations of many lanes under random schedules, on the soft GPU, and what the host's
//! side of this crate then finds in the map: every kind of map that has a promise beyond its key's
//! order, which `crates/codegen/tests/suite/history.rs` looks at. And the same operations of one
//! lane, which must say at every step what a model says.

mod alone;
mod arrays;
#[path = "../../../codegen/tests/suite/common.rs"]
#[expect(dead_code, reason = "the compiler's own tests use all of it")]
mod device;
mod events;
mod feed;
mod filter;
mod inner;
mod tables;
mod work;

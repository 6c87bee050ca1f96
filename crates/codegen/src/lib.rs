//! Turns a verified program into PTX statements.
//!
//! ```text
//! from_ebpf → opt_copy → opt_fold → opt_blocks → opt_gvn → … → opt_atomics → opt_stores → … →
//!   lower → emit
//! ```
//!
//! The list of passes is `PASSES` in `pipeline.rs`; each is a file of its own. Only a
//! [`Verified`](warpbpf_verify::Verified) program is compiled: the proof's facts say which memory
//! each access touches, so nothing here guesses. What the code may assume of the GPU is what the
//! PTX ISA says of any target from `sm_70` on; lanes may arrive, split and meet in any way.
//!
//! Layers, each uses only those to its right: `map_use → pipeline → emit → opt_dce → from_ebpf →
//! guard_loops → guard_products → interpreter → opt_blocks → opt_copy → opt_counts → opt_fold →
//! opt_gvn → queue → cfg → eval → fence → lower → opaque → opt_atomics → opt_stores → opt_tallies →
//! opt_together → prelude → print → text → ir → kernel → stack → tally → alone → bitmap → error →
//! fragment`.

#![forbid(unsafe_code)]

pub mod error;
pub mod fragment;
pub mod interpreter;
pub mod kernel;
pub mod map_use;
pub mod tally;

mod ir;
mod print;

mod cfg;
mod eval;
mod stack;
mod text;

mod alone;
mod bitmap;
mod emit;
mod fence;
mod from_ebpf;
mod guard_loops;
mod guard_products;
mod lower;
mod opaque;
mod opt_atomics;
mod opt_blocks;
mod opt_copy;
mod opt_counts;
mod opt_dce;
mod opt_fold;
mod opt_gvn;
mod opt_stores;
mod opt_tallies;
mod opt_together;
mod pipeline;
mod prelude;
mod queue;
#[cfg(test)]
mod tests;

pub use error::CodegenError;
pub use fragment::*;
pub use map_use::map_uses;
pub use opaque::group_mask;
pub use pipeline::{compile, dump_ir, pass_names};

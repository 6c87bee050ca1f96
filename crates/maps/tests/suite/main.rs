//! Maps from the host's side, against models, and beside programs that use them on the soft GPU.

mod access;
mod common;
mod each;
mod hash;
mod hosted;
mod inner;
mod keyless;
mod merge;
mod plan;
mod printk;
mod ring;
mod stress;
mod user_ring;

//! How programs get into kernels on this machine: the assembler, Compute Sanitizer, and which back
//! end is chosen.

pub mod assemble;
pub mod available;
pub mod choose;
pub mod ptxas;
pub mod python;
pub mod sanitizer;

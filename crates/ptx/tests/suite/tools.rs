//! What writes PTX, what assembles it, and what must hold of each text.

pub mod clang;
pub mod home;
pub mod lossless;
pub mod nvcc;
pub mod ptxas;

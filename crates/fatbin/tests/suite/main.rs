//! Containers of code as the toolkit writes them, and as nobody should.

mod container;
mod nvcc;

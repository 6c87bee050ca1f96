//! The emulated GPU through its public interface: kernels by hand and by nvcc, what they compute
//! and what stops them.

mod bulk;
mod common;
mod constructs;
mod cuda;
mod divergence;
mod gemm;
mod host;
mod hostile;
mod images;
mod library;
mod matrix;
mod matrix_traps;
mod ptx;
mod traps;
mod video;
mod wgmma;
